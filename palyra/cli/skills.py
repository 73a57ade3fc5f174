"""`palyra skills`: write, package, sign, install and audit WASM skills.

The publisher's commands (init, build, sign) work on local files: the folder of a skill, its package
and the publisher's key.  The other commands are requests to the daemon.
"""

import os
import shutil
import tomllib
from pathlib import Path

import click
import msgspec

import palyra
from palyra.cli.command.errors import FAILED, USAGE, CommandFailed
from palyra.cli.command.options import GivenPath, replace_file, shared_options
from palyra.cli.command.output import age, one_line, print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.cli.tape import read_bytes
from palyra.client import Client, Skill
from palyra.config.parts import find_missing
from palyra.core.skill.manifest import MODULE, SkillDescription, SkillId, SkillRefused
from palyra.core.skill.package import build_package, sign_package
from palyra.core.text.visible import pluralize
from palyra.net.protocol.results import TextSkillView

TEMPLATES = ("wat", "c", "rust", "assemblyscript")
SOURCE = "skill.toml"
TEXT_MODULE = "module.wat"
_EXAMPLE_ID = 'id = "example"'


def make_folder(folder: Path, template: str, skill_id: str) -> None:
    """Create a skill's folder from a template.

    Raises CommandFailed if the folder exists or `skill_id` is not a valid skill name.
    """
    if not folder.exists():
        _check_id(skill_id)
    source = Path(palyra.__file__).parent / "templates" / "skills" / template
    try:
        shutil.copytree(source, folder)
        described = (folder / SOURCE).read_text(encoding="utf-8")
        (folder / SOURCE).write_text(
            described.replace(_EXAMPLE_ID, f'id = "{skill_id}"'), encoding="utf-8"
        )
    except OSError as error:
        raise CommandFailed(
            f"{folder}: {error.strerror}", "name a folder that does not exist yet"
        ) from None


def _check_id(skill_id: str) -> None:
    try:
        msgspec.convert(skill_id, SkillId)
    except msgspec.ValidationError:
        raise CommandFailed(
            f"{skill_id!r} is not a skill name: use a lowercase letter, then at most 23 "
            "lowercase letters, digits, _ and -",
            "give it one with --id",
            code=USAGE,
        ) from None


def pack_folder(folder: Path) -> tuple[SkillDescription, bytes]:
    """Build an unsigned package of the folder; return the skill's description and the package.

    Raises CommandFailed for an invalid description or module.
    """
    try:
        described = tomllib.loads(read_bytes(folder / SOURCE).decode())
        description = msgspec.convert(described, SkillDescription)
        return description, build_package(description, {MODULE: _read_module(folder)})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise CommandFailed(
            f"{folder / SOURCE}: {error}", "see docs/skills.md", code=USAGE
        ) from None
    except SkillRefused as refused:
        raise CommandFailed(refused.message, "see docs/skills.md", code=USAGE) from None


def _read_module(folder: Path) -> bytes:
    """Return `module.wat` compiled to WASM, or without that file the content of `module.wasm`."""
    text = folder / TEXT_MODULE
    if not text.exists():
        return read_bytes(folder / MODULE)
    if missing := find_missing("wasm"):
        raise CommandFailed(f"{text}: {missing}", f"or compile it to {MODULE} another way")
    import wasmtime  # noqa: PLC0415 - slow, and rarely needed

    try:
        return bytes(wasmtime.wat2wasm(read_bytes(text).decode()))
    except (wasmtime.WasmtimeError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{text}: {error}", "correct the text", code=USAGE) from None


def sign_file(path: Path, key: Path, *, may_create: bool) -> tuple[bytes, str]:
    """Return the signed package and the publisher's public key in hex.

    Raises CommandFailed for an invalid package or key.
    """
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (  # noqa: PLC0415 - slow
        Ed25519PrivateKey,
    )

    seed = _read_key(key, may_create=may_create)
    private = Ed25519PrivateKey.from_private_bytes(seed)
    public = private.public_key().public_bytes_raw()
    try:
        return sign_package(read_bytes(path), public, private.sign), public.hex()
    except SkillRefused as refused:
        raise CommandFailed(
            f"{path}: {refused.message}", "build the package again", code=USAGE
        ) from None


def _read_key(path: Path, *, may_create: bool) -> bytes:
    """Read the private key: a seed of 32 bytes, stored as hex.

    With `may_create` a missing file is created with a random seed.
    Raises CommandFailed for a missing or invalid key.
    """
    if not path.exists():
        if not may_create:
            raise CommandFailed(f"{path}: no such key", "create one with --create", code=USAGE)
        _write_key(path)
    try:
        seed = bytes.fromhex(read_bytes(path).decode("ascii"))
    except ValueError:
        seed = b""
    if len(seed) != 32:  # noqa: PLR2004 - an Ed25519 private key (RFC 8032)
        raise CommandFailed(
            f"{path} is not a publisher's key", "create one with --create", code=USAGE
        )
    return seed


def _write_key(path: Path) -> None:
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(os.urandom(32).hex() + "\n")
    except OSError as error:
        raise CommandFailed(
            f"{path}: {error.strerror}", "name a file that can be written"
        ) from None


COLUMNS = ("SKILL", "VERSION", "PUBLISHER", "STATE", "TOOLS", "CHANGED")
TEXT_COLUMNS = ("TEXT SKILL", "WORKSPACE", "FOLDER", "ABOUT")
ABOUT_CHARS = 100
_FILE = GivenPath()


@click.group()
def skills() -> None:
    """Write, install, audit and quarantine WASM skills."""


# --- commands of the publisher


@skills.command("init")
@click.argument("folder", type=_FILE)
@click.option(
    "--template",
    type=click.Choice(TEMPLATES),
    default="wat",
    show_default=True,
    help="Language of the new skill.",
)
@click.option("--id", "skill_id", help="Name of the skill; default: the folder's name.")
def init(folder: Path, template: str, skill_id: str | None) -> None:
    """Create a folder with an example skill."""
    make_folder(folder, template, skill_id or folder.resolve().name)
    say(f"{folder} is created; docs/skills.md describes the next steps")


@skills.command()
@click.argument("folder", type=_FILE, default=Path())
@click.option("--out", "-o", type=_FILE, help="Path of the package; default ID-VERSION.zip.")
def build(folder: Path, out: Path | None) -> None:
    """Build an unsigned package of a folder."""
    description, package = pack_folder(folder)
    path = out or Path(f"{description.id}-{description.version}.zip")
    replace_file(path, package)
    say(f"{path}: {pluralize(len(description.tools), 'tool')}, {len(package)} bytes")


@skills.command()
@click.argument("package", type=_FILE)
@click.option("--key", type=_FILE, required=True, help="File with the publisher's private key.")
@click.option("--create", is_flag=True, help="Create the key if it does not exist.")
def sign(package: Path, key: Path, *, create: bool) -> None:
    """Sign a package as its publisher, in place."""
    signed, public_key = sign_file(package, key, may_create=create)
    replace_file(package, signed)
    say(f"{package} is signed with {public_key}")


# --- commands of the operator


@skills.command()
@click.argument("package", type=_FILE)
@click.option(
    "--grant", multiple=True, help="Grant a capability that the skill declares; repeatable."
)
@click.option("--trust-key", help="The publisher's public key in hex, obtained by a trusted way.")
@shared_options
def install(options: Options, package: Path, grant: tuple[str, ...], trust_key: str | None) -> None:
    """Install a package; capabilities that it declares without a grant are denied."""
    data = read_bytes(package)

    async def work(client: Client) -> Skill:
        sha256 = await client.upload_skill(data)
        return await client.install_skill(sha256, grant=grant, trust_key=trust_key)

    made = talk(options, work)
    if options.as_json:
        print_json(made)
        return
    say(f"{made.id} {made.version} of {made.publisher} is installed: {_tools(made)}")
    missing = [each for each in made.capabilities if each not in made.granted]
    if missing:
        say(f"not granted: {', '.join(missing)}", dim=True)


@skills.command("list")
@shared_options
def list_(options: Options) -> None:
    """List skills, and text skills: folders with SKILL.md of the workspaces and the home."""
    found = talk(options, lambda client: client.list_skills())
    if options.as_json:
        print_json(found)
        return
    print_table(COLUMNS, [_row(skill) for skill in found.skills], empty="no skills")
    if found.obstacle:
        say(f"none can be called: {found.obstacle}", fg="yellow")
    if found.texts:
        say()
        print_table(TEXT_COLUMNS, [_text_row(each) for each in found.texts], empty="")


def _text_row(skill: TextSkillView) -> tuple[object, ...]:
    about = f"not used: {skill.problem}" if skill.problem else skill.description
    return (skill.name, skill.workspace or "home", skill.folder, one_line(about, ABOUT_CHARS))


def _row(skill: Skill) -> tuple[object, ...]:
    return (
        skill.id,
        skill.version,
        skill.publisher,
        skill.state,
        len(skill.tools),
        age(skill.changed_ms),
    )


@skills.command()
@click.argument("skill_id")
@shared_options
def show(options: Options, skill_id: str) -> None:
    """Show one skill."""
    skill = talk(options, lambda client: client.get_skill(skill_id))
    if options.as_json:
        print_json(skill)
        return
    print_table(COLUMNS, [_row(skill)], empty="")
    say(skill.description)
    if skill.reason:
        say(f"quarantined by {skill.changed_by}: {skill.reason}", fg="yellow")
    say(f"declares: {', '.join(skill.capabilities) or 'nothing'}")
    say(f"granted:  {', '.join(skill.granted) or 'nothing'}")
    say(f"key:      {skill.public_key}")
    say(f"package:  {skill.package_sha256}")
    rows = [(tool.name, tool.tool_class, tool.risk, tool.description) for tool in skill.tools]
    print_table(("TOOL", "CLASS", "RISK", "DESCRIPTION"), rows, empty="")


@skills.command()
@click.argument("skill_id")
@shared_options
def audit(options: Options, skill_id: str) -> None:
    """Check an installed skill again; the exit code is 1 if anything is wrong."""
    found = talk(options, lambda client: client.audit_skill(skill_id))
    if options.as_json:
        print_json(found)
    elif found.problems:
        for problem in found.problems:
            say(problem, fg="red")
    else:
        imports = ", ".join(found.imports) or "nothing"
        say(f"{skill_id} is unchanged since its installation", fg="green")
        functions = pluralize(found.functions, "function")
        say(f"{functions}, {found.module_bytes} bytes, imports {imports}")
    if found.problems:
        raise SystemExit(FAILED)


@skills.command()
@click.argument("skill_id")
@click.option("--reason", required=True, help="Reason, shown by `palyra skills show`.")
@shared_options
def quarantine(options: Options, skill_id: str, reason: str) -> None:
    """Quarantine a skill: its tools cannot be called until it is enabled again."""
    changed = talk(options, lambda client: client.quarantine_skill(skill_id, reason))
    _confirm(options, changed, "is quarantined")


@skills.command()
@click.argument("skill_id")
@shared_options
def enable(options: Options, skill_id: str) -> None:
    """Enable a quarantined skill again, if an audit finds no problem."""
    _confirm(options, talk(options, lambda client: client.enable_skill(skill_id)), "is enabled")


@skills.command()
@click.argument("skill_id")
@shared_options
def remove(options: Options, skill_id: str) -> None:
    """Remove a skill; its publisher's key stays on record."""
    _confirm(options, talk(options, lambda client: client.remove_skill(skill_id)), "is removed")


def _confirm(options: Options, skill: Skill, what: str) -> None:
    if options.as_json:
        print_json(skill)
    else:
        say(f"{skill.id} {skill.version} {what}")


def _tools(skill: Skill) -> str:
    return ", ".join(tool.name for tool in skill.tools)
