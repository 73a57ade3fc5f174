"""`palyra models add`: configure a provider step by step, try it with one call, write it down.

The key never passes through the command line: the configuration takes a reference to it, and a key
that is typed goes into the vault.  The configuration is replaced whole, after the new text was
loaded like the daemon will load it; until then nothing is changed.
"""

import difflib
import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import msgspec

from palyra.cli.command.errors import FAILED, CommandFailed, stop_for
from palyra.cli.command.in_force import say_in_force
from palyra.cli.command.options import GivenPath, load_config, shared_options
from palyra.cli.command.output import now_ms, one_line, print_json, say
from palyra.cli.command.talk import Options, verdict
from palyra.cli.secrets import open_resolver, read_value
from palyra.config.file import replace_text
from palyra.config.load import Config, first_file, load, refuse_secrets
from palyra.config.sections import ModelProvider
from palyra.core.redaction.redactor import Redactor
from palyra.core.redaction.secret_references import parse_reference
from palyra.errors import InvalidParams, NotFound, PalyraError
from palyra.models.presets import AWS_KEY, PRESETS, Preset
from palyra.models.table import known_at

if TYPE_CHECKING:
    from palyra.core.model.messages import ModelTurn

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
REMEDIES = {
    "key": "check the key and its account, then run the command again",
    "network": "check the network and --base-url; a local server must be running",
    "model": "check the name of the model (--model) in the provider's list, and the path of --base-url",
    "quota": "the key is right; check the account's credit and limits",
    "other": "see the provider's words above; --no-test writes the configuration anyway",
}


class _Answers(NamedTuple):
    """The options of the command; None: to be asked, or the default."""

    key: str | None
    model: str | None
    base_url: str | None
    region: str | None
    key_id: str | None
    session: str | None
    api_version: str | None
    is_default: bool | None
    is_tested: bool
    dry_run: bool
    file: Path | None
    is_asking: bool


class _Wanted(NamedTuple):
    """Answers to the questions, from options or from the terminal."""

    provider: ModelProvider  # as it will be configured
    model: str  # the provider's name of it
    is_default: bool


class _Plan(NamedTuple):
    """A change of the configuration file."""

    path: Path
    before: str | None  # None: there is no file
    after: str


def _complete(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    return [each for each in PRESETS if each.startswith(incomplete)]


@click.command()
@click.argument("provider", default="", shell_complete=_complete)
@click.option(
    "--key", help="Reference to the key: env:NAME, vault:NAME, file:PATH, keyring:S/NAME."
)
@click.option("--model", help="A model of the provider, as the provider calls it.")
@click.option("--region", help="AWS region of bedrock.")
@click.option("--key-id", help="Reference to the id of an AWS access key; --key is its secret.")
@click.option("--session", help="Reference to the session token of a temporary AWS access key.")
@click.option("--api-version", help="Version of azure's API.")
@click.option("--base-url", help="Address of the API, if it is not the provider's own.")
@click.option("--default/--no-default", "is_default", default=None, help="Use it for all runs.")
@click.option("--test/--no-test", "is_tested", default=True, help="Try the model with one call.")
@click.option("--dry-run", is_flag=True, help="Show the change; write nothing.")
@click.option("--yes", is_flag=True, help="Ask nothing: take the options and the defaults.")
@click.option("--config", "file", type=GivenPath(), help="Path of another palyra.toml.")
@shared_options
def add(options: Options, provider: str, **given: Any) -> None:  # noqa: ANN401 - the options
    """Add a model provider to palyra.toml.

    PROVIDER is openai, anthropic, gemini, bedrock, azure, openrouter, ollama, vllm, llamacpp, or a name of your own for a
    server with an OpenAI-compatible API, whose address is --base-url.

    Asks for what the options leave out, tries one call, shows the change and writes it.  The key
    itself is never an option: name the place where it is (--key env:OPENAI_API_KEY).
    """
    answers = _Answers(is_asking=_may_ask(yes=given.pop("yes")), **given)
    try:
        _add(options, provider, answers)
    except PalyraError as error:
        raise stop_for(error) from None


def _may_ask(*, yes: bool) -> bool:
    return not yes and sys.stdin is not None and sys.stdin.isatty()


def _add(options: Options, provider: str, answers: _Answers) -> None:
    from palyra.models.trial import check_provider  # noqa: PLC0415 - imports the HTTP client

    config = _load(options, answers.file)
    wanted = _ask(config, provider, answers)
    check_provider(wanted.provider)
    turn = _try(config, wanted) if answers.is_tested else None
    wanted = wanted._replace(is_default=_decide_default(config, wanted, answers))
    plan = _plan(config, wanted)
    _check(plan, options.home)
    is_written = _apply(plan, answers, is_quiet=options.as_json)
    _report(options, wanted, plan, turn, is_written=is_written, is_own_file=answers.file is None)


def _load(options: Options, file: Path | None) -> Config:
    """Return the configuration; a file that does not exist yet is an empty one."""
    config = load_config(options.home, file if file is not None and file.exists() else None)
    if file is None:
        return config
    paths = msgspec.structs.replace(config.paths, config_file=file.absolute())
    return msgspec.structs.replace(config, paths=paths)


# --- questions -----------------------------------------------------------------------------------


def _ask(config: Config, name: str, answers: _Answers) -> _Wanted:
    """Return the provider to configure.  Raises InvalidParams for an answer that is missing."""
    _check_name(name)
    preset = _preset_of(name, answers)
    before = next((each for each in config.models.providers if each.name == name), None)
    found = before or ModelProvider(name=name)
    plain = {key: getattr(answers, key) for key in ("region", "key_id", "session", "api_version")}
    given = {key: value for key, value in plain.items() if value is not None}
    _refuse_strangers(name, preset, given)
    found = msgspec.structs.replace(found, **given, base_url=_ask_url(preset, found, answers))
    usual = AWS_KEY if found.key_id else preset.key
    reference = _ask_key(config, name, answers.key or found.key or usual, answers)
    model = answers.model or _ask_model(name, preset, found, is_asking=answers.is_asking)
    if not model.isprintable() or model != model.strip():
        raise InvalidParams(f"{model!r} is no name of a model", field="model")
    models = tuple(dict.fromkeys([*found.models, model]))
    return _Wanted(msgspec.structs.replace(found, key=reference, models=models), model, False)  # noqa: FBT003 - decided later


def _check_name(name: str) -> None:
    """Raise InvalidParams for a name that is missing, or could not stand before a model's name."""
    if name and not _NAME.fullmatch(name):
        raise InvalidParams(
            f"{name!r} is no name of a provider: lowercase letters, digits, - and _",
            field="provider",
        )
    if not name:
        raise InvalidParams(
            f"name a provider: {', '.join(PRESETS)}, or a name of your own with --base-url",
            field="provider",
        )


def _preset_of(name: str, answers: _Answers) -> Preset:
    """Return the defaults of a provider; one of a name of its own needs an address."""
    if name in PRESETS:
        return PRESETS[name]
    if not answers.base_url and not answers.is_asking:
        near = difflib.get_close_matches(name, PRESETS, n=1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InvalidParams(
            f"{name} is none of the known providers ({', '.join(PRESETS)}): {meant}"
            "give the address of your own with --base-url",
            field="provider",
        )
    return Preset("")


def _refuse_strangers(name: str, preset: Preset, given: dict[str, str]) -> None:
    """Raise InvalidParams for an option of another provider."""
    own = {"azure": {"api_version"}, "bedrock": {"region", "key_id", "session"}}
    for key in given:
        if key not in own.get(preset.api, set()):
            option = f"--{key.replace('_', '-')}"
            raise InvalidParams(f"{option} is no setting of {name}", field=key)


def _ask_url(preset: Preset, found: ModelProvider, answers: _Answers) -> str:
    """Return the address; "" is the preset's own."""
    given = found.base_url if answers.base_url is None else answers.base_url
    if given or preset.base_url or not answers.is_asking:
        return given
    example = (
        "https://NAME.openai.azure.com" if preset.api == "azure" else "http://127.0.0.1:8000/v1"
    )
    answer: str = click.prompt(f"address ({example})", err=True)
    return answer.strip()


def _ask_key(config: Config, name: str, given: str, answers: _Answers) -> str:
    """Return the reference to the key, "" for none; a key that is typed goes into the vault.

    Without a trial the key need not be there: the daemon may have another environment.
    """
    is_asking = answers.is_asking
    if is_asking:
        answer: str = click.prompt("reference to the key", default=given or "none", err=True)
        given = "" if answer.strip() == "none" else answer.strip()
    if not given:
        return ""
    reference = parse_reference(given)
    try:
        open_resolver(config).resolve(reference.text, may_be_short=True)
    except NotFound as error:
        if not is_asking and not answers.is_tested:
            return reference.text
        if not is_asking or reference.kind not in {"env", "vault"}:
            raise _missing_key(name, reference.text, error) from None
        return _store_key(config, name, reference.name if reference.kind == "vault" else name)
    return reference.text


def _missing_key(name: str, reference: str, error: NotFound) -> CommandFailed:
    return CommandFailed(
        f"the key of {name} is not there: {error.message}",
        f"set it where {reference} points, or store it with `palyra secrets set {name}` "
        f"and give --key vault:{name}",
        kind="not_found",
        field="key",
    )


def _store_key(config: Config, name: str, entry: str) -> str:
    """Store a typed key in the vault and return its reference.  Raises click.Abort for a no."""
    question = f"there is no key yet: type it now and keep it as vault:{entry}?"
    click.confirm(question, default=True, abort=True, err=True)
    open_resolver(config).put(entry, read_value(f"the key of {name}"), now_ms())
    return f"vault:{entry}"


def _ask_model(name: str, preset: Preset, found: ModelProvider, *, is_asking: bool) -> str:
    suggested = next(iter(found.models), preset.model)
    if is_asking:
        answer: str = click.prompt("model", default=suggested or None, err=True)
        return answer.strip()
    if not suggested:
        raise InvalidParams(f"name a model of {name} with --model", field="model")
    return suggested


def _decide_default(config: Config, wanted: _Wanted, answers: _Answers) -> bool:
    """True if runs that name no model shall use it: as asked, or instead of the scripted one."""
    if answers.is_default is not None:
        return answers.is_default
    now, name = config.models.default, f"{wanted.provider.name}/{wanted.model}"
    if answers.is_asking and now != name:
        question = f"use {name} for runs that name no model, instead of {now}?"
        return click.confirm(question, default=now == "scripted", err=True)
    return now == "scripted"


# --- the call ------------------------------------------------------------------------------------


def _try(config: Config, wanted: _Wanted) -> "ModelTurn":
    """Make one call.  Raises CommandFailed with the part of the configuration that is wrong."""
    import trio  # noqa: PLC0415 - help must be instant

    from palyra.core.model.messages import ModelFailure  # noqa: PLC0415
    from palyra.models.trial import problem_of, try_model  # noqa: PLC0415 - imports the HTTP client

    resolver = open_resolver(config)

    async def find_secret(reference: str) -> str:
        await trio.lowlevel.checkpoint()
        return resolver.resolve(reference, may_be_short=True)

    say(f"trying {wanted.provider.name}/{wanted.model} …", dim=True, err=True)
    try:
        run = partial(trio.run, restrict_keyboard_interrupt_to_checkpoints=True)
        turn: ModelTurn = run(
            try_model, wanted.provider, wanted.model, find_secret, config.outbound
        )
    except KeyboardInterrupt as error:
        raise verdict(BaseExceptionGroup("", [error])) from None
    except ModelFailure as failure:
        problem = problem_of(failure)
        words = {"key": "the key is refused", "network": "it cannot be reached",
                 "model": f"it has no model {wanted.model!r}", "quota": "it answers no more for now",
                 "other": "the call failed"}  # fmt: skip
        shown, _ = Redactor([]).redact_text(failure.message)
        remedy = REMEDIES[problem]
        if problem == "key" and not wanted.provider.key:
            words["key"], remedy = "it wants a key", "name the place of its key with --key"
        if problem == "network" and shown.startswith("HTTP "):
            words["network"] = "it answers with an error"
            remedy = "try again later, or see the log of the server, or of the proxy in front of it"
        said = f"{wanted.provider.name}: {words[problem]}: {shown}"
        is_named = shown.startswith(f"{wanted.provider.name} has no model")
        raise CommandFailed(
            shown if is_named else said,
            remedy,
            code=FAILED,
            kind=failure.failure_class,
            field={"key": "key", "model": "model", "network": "base_url"}.get(problem),
        ) from None
    return turn


# --- the file ------------------------------------------------------------------------------------


def _plan(config: Config, wanted: _Wanted) -> _Plan:
    """Return the change of the file.  Raises InvalidParams, Unavailable, CommandFailed."""
    from palyra.config.edit import set_entry, set_value  # noqa: PLC0415 - imports tomlkit

    path = config.paths.config_file
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
    except (OSError, UnicodeDecodeError) as error:
        raise CommandFailed(f"{path}: {error}", "name another file with --config") from None
    text = first_file() if before is None else before
    entry = _entry(wanted.provider)
    text = set_entry(text, "models", "providers", entry)
    if wanted.is_default:
        text = set_value(text, "models", "default", f"{wanted.provider.name}/{wanted.model}")
    return _Plan(path, before, text)


def _entry(provider: ModelProvider) -> dict[str, object]:
    """Return the keys of the provider that differ from the defaults, in the order of the schema."""
    plain = ModelProvider(name="")
    preset = PRESETS.get(provider.name, Preset(""))
    given = {key: getattr(provider, key) for key in ModelProvider.__struct_fields__}
    kept = {key: value for key, value in given.items() if value != getattr(plain, key)}
    if kept.get("key") in {preset.key, AWS_KEY if provider.key_id else ""}:
        del kept["key"]  # the daemon's own default
    return {key: list(value) if isinstance(value, tuple) else value for key, value in kept.items()}


def _check(plan: _Plan, home: Path | None) -> None:
    """Load the new text as the daemon will.  Raises InvalidParams."""
    refuse_secrets(load(plan.path, home=home, text=plan.after), Redactor([]).redact_text)


def _apply(plan: _Plan, answers: _Answers, *, is_quiet: bool) -> bool:
    """Show the change and write it; return True if the file was written."""
    if plan.after == plan.before:
        return False
    if not is_quiet:
        _show(plan)
    if answers.dry_run:
        return False
    if answers.is_asking:
        click.confirm(f"write {plan.path}?", default=True, abort=True, err=True)
    replace_text(plan.path, plan.before, plan.after)
    return True


def _show(plan: _Plan) -> None:
    """Print the changed lines; of a new file those that the first start would not write."""
    before = (first_file() if plan.before is None else plan.before).splitlines()
    lines = difflib.unified_diff(before, plan.after.splitlines(), n=1, lineterm="")
    for line in [f"{plan.path}:", *list(lines)[2:]]:
        say(line, dim=True)


def _report(
    options: Options,
    wanted: _Wanted,
    plan: _Plan,
    turn: "ModelTurn | None",
    *,
    is_written: bool,
    is_own_file: bool,
) -> None:
    name = f"{wanted.provider.name}/{wanted.model}"
    known = known_at([wanted.provider]).find(name)
    if options.as_json:
        print_json({
            "model": name, "key": wanted.provider.key, "config_file": str(plan.path),
            "is_written": is_written, "is_default": wanted.is_default, "is_known": known is not None,
            "answer": None if turn is None else turn.text,
        })  # fmt: skip
        return
    if turn is not None:
        used = turn.usage.input_tokens + turn.usage.output_tokens
        say(f"{name} answers: {one_line(turn.text) or '(nothing)'} ({used} tokens)")
    if known is None:
        say(f"{name} is not in the table of models: its window and its price are unknown", dim=True)
    if is_written:
        say(f"{plan.path} is written")
        if is_own_file:
            say_in_force(options, "models.providers", "models.default")
    elif plan.after == plan.before:
        say(f"{plan.path} has it already")
