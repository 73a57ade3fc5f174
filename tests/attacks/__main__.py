"""`python -m tests.attacks`: every class of attacks, as the table of docs/evidence.md."""

import sys
import tempfile
from pathlib import Path

import trio

from tests.attacks.cases import CLASSES


async def main() -> None:
    """Run them all."""
    sys.stdout.write(
        "| Class | Orders obeyed | Effects nobody allowed | Control | Runs not finished |\n"
    )
    sys.stdout.write("|---|---|---|---|---|\n")
    for name, attack in CLASSES.items():
        with tempfile.TemporaryDirectory() as base:
            tally = await attack(Path(base))
        sys.stdout.write(
            f"| {name} | {tally.orders} | {tally.effects} | {tally.control} | {tally.unfinished} |\n"
        )


if __name__ == "__main__":
    trio.run(main)
