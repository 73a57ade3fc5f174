"""Options of one run given at the command line, as parameters of `run.start`.

Pure but for the files that the options name: amounts, images, and the schema of the answer.
"""

import base64
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import click
import msgspec

from palyra.cli.command.errors import USAGE, CommandFailed
from palyra.core.journal.records import BudgetMetric
from palyra.core.model.images import IMAGE, MAX_PICTURE_BYTES, MAX_PICTURES, check_picture
from palyra.core.model.picture_files import BrokenPicture
from palyra.core.session.commands import WEEK_MS
from palyra.core.tape.events import Budget

MAX_SCHEMA_BYTES = 65_536  # that are read; the daemon decides about the limit
MICROS = 1_000_000
MAX_AMOUNT = 1_000_000_000_000_000  # of `run.start`
_AMOUNT = re.compile(r"\$?([0-9]{1,12}(?:\.[0-9]{1,6})?)(usd|tokens)?")


def parse_budget(amounts: tuple[str, ...], timeout_ms: int | None) -> Budget:
    """Return the budget of `--budget` (0.50usd, 20000tokens) and `--timeout`.

    Raises click.BadParameter for an amount without a unit, or out of range.
    """
    found: dict[str, int] = {}
    for text in amounts:
        try:
            metric, amount = parse_amount(text)
        except click.BadParameter as error:
            error.param_hint = "--budget"
            raise
        if metric in found:
            raise click.BadParameter(f"{text!r}: there is another limit of {metric}")
        found[metric] = amount
    if timeout_ms is not None:
        if not 0 < timeout_ms <= WEEK_MS:
            raise click.BadParameter("a run may take 1s to 7d", param_hint=["--timeout"])
        found["wall_ms"] = timeout_ms
    return Budget(**found)


def parse_amount(text: str) -> tuple[BudgetMetric, int]:
    """Return the metric and number of an amount such as 0.50usd.  Raises click.BadParameter."""
    match = _AMOUNT.fullmatch(text)
    unit = match[2] or ("usd" if text.startswith("$") else "") if match else ""
    if match is None or not unit or (text.startswith("$") and unit != "usd"):
        raise click.BadParameter(
            f"{text!r}: write an amount and its unit, such as 0.50usd or 20000tokens",
        )
    number = Decimal(match[1])
    scaled = number * MICROS if unit == "usd" else number
    if scaled != int(scaled) or not 0 < scaled <= MAX_AMOUNT:
        raise click.BadParameter(
            f"{text!r}: more than nothing, whole tokens, and at most {MAX_AMOUNT // MICROS} dollars",
        )
    return ("usd_micros" if unit == "usd" else "tokens"), int(scaled)


def read_images(paths: tuple[Path, ...]) -> list[dict[str, Any]]:
    """Return the files as attachments.  Raises CommandFailed for one that is no picture, or too large."""
    if len(paths) > MAX_PICTURES:
        raise CommandFailed(
            f"{len(paths)} images", f"a message may have {MAX_PICTURES}", code=USAGE
        )
    return [read_image(path) for path in paths]


def read_image(path: Path) -> dict[str, Any]:
    """Return the file as an attachment.  Raises CommandFailed for one that is no picture, or too large."""
    data = _read(path.expanduser(), MAX_PICTURE_BYTES)
    try:
        media_type = check_picture(data).media_type
    except BrokenPicture as broken:
        why = f"{path} is no picture that can be sent: {broken.message}"
        raise CommandFailed(why, "name a whole PNG, JPEG, GIF or WebP file", code=USAGE) from None
    encoded = base64.b64encode(data).decode()
    return {"type": IMAGE, "data": encoded, "media_type": media_type, "name": path.name[:256]}


def read_answer_schema(path: Path) -> dict[str, Any]:
    """Return the JSON Schema in the file.  Raises CommandFailed if it is no JSON object."""
    try:
        found = msgspec.json.decode(_read(path, MAX_SCHEMA_BYTES))
    except msgspec.DecodeError as error:
        raise CommandFailed(
            f"{path}: {error}", "name a file with a JSON Schema", code=USAGE
        ) from None
    if not isinstance(found, dict):
        raise CommandFailed(f"{path}: no JSON object", "name a file with a JSON Schema", code=USAGE)
    return found


def _read(path: Path, limit_bytes: int) -> bytes:
    """Read a regular file of at most that many bytes."""
    try:
        if not path.is_file():
            missing = "no regular file" if path.exists() else "no such file"
            raise CommandFailed(f"{path}: {missing}", "name a readable file", code=USAGE)
        with path.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except OSError as error:
        raise CommandFailed(
            f"{path}: {error.strerror}", "name a readable file", code=USAGE
        ) from None
    if len(data) > limit_bytes:
        raise CommandFailed(
            f"{path}: more than {limit_bytes} bytes", "name a smaller file", code=USAGE
        )
    return data
