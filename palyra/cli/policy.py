"""`palyra policy`: explain a decision of the policy rules, validate the rules and test them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from palyra.cli.command.errors import FAILED, USAGE, CommandFailed
from palyra.cli.command.names import IdType
from palyra.cli.command.options import GivenPath, load_config, shared_options
from palyra.cli.command.output import age, print_json, say
from palyra.cli.command.talk import Options, talk
from palyra.core.policy.grants import describe_key
from palyra.core.policy.suggestion import MIN_ANSWERS
from palyra.core.policy.views import RuleFor, SuggestionList
from palyra.core.text.visible import pluralize, visible
from palyra.errors import Rejected, Unavailable

if TYPE_CHECKING:
    from palyra.tools.policy.presets import PresetName

COLOURS = {"allow": "green", "ask": "yellow", "deny": "red"}
_FOLDER = GivenPath(exists=True, file_okay=False)
_FILE = GivenPath(exists=True, dir_okay=False)


@click.group()
def policy() -> None:
    """Explain, check and test policies."""


@policy.command()
@click.argument("tool")
@click.argument("arguments", default="{}")
@click.option("--agent", help="Agent that proposes the call; default: the default agent.")
@click.option("--session", "session_id", help="Session whose grants apply as well.")
@shared_options
def explain(
    options: Options, tool: str, arguments: str, agent: str | None, session_id: str | None
) -> None:
    """Show the decision about a call of TOOL with ARGUMENTS (a JSON object), and the reason."""
    try:
        given = msgspec.json.decode(arguments, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise click.UsageError(f"ARGUMENTS is not a JSON object: {error}") from None
    found = talk(
        options,
        lambda client: client.explain_policy(tool, given, agent=agent, session_id=session_id),
    )
    if options.as_json:
        print_json(found)
        return
    plain = {"allow": "allowed", "ask": "asks", "deny": "denied"}[found.answer]
    code = "" if found.reason_code == plain else f" ({found.reason_code})"
    say(f"{found.answer}{code}", fg=COLOURS[found.answer], bold=True)
    say(found.reason)
    if found.grant_key:
        say(
            f"an answer with a wider scope than once would apply to {describe_key(found.grant_key)}"
        )
    say(f"rules: {', '.join(found.policies) or 'none'}; version {found.version}", dim=True)


@policy.command()
@click.argument("folder", required=False, type=_FOLDER)
@shared_options
def check(options: Options, folder: Path | None) -> None:
    """Parse and validate the policies of FOLDER, else of the configuration, without a daemon.

    The exit code is 1 if the daemon would refuse the policies.
    """
    from palyra.tools.policy.cases import check_policies  # noqa: PLC0415 - loads the engine

    try:
        found = check_policies(_folder(options, folder))
    except Rejected as broken:
        raise CommandFailed(
            broken.message, "repair the file; the daemon keeps its last valid policies"
        ) from None
    if options.as_json:
        print_json(found)
        return
    rules, files = pluralize(len(found.rules), "rule"), pluralize(len(found.files), "file")
    say(f"valid: {rules} in {files}", fg="green")
    say(f"version {found.version}", dim=True)


@policy.command()
@click.argument("file", type=_FILE)
@click.option(
    "--policies", "folder", type=_FOLDER, help="Folder of policies; default: the configured one."
)
@shared_options
def test(options: Options, file: Path, folder: Path | None) -> None:
    """Test the rules with the cases of FILE (TOML or JSON), without a daemon.

    The exit code is 1 if a case has another outcome than expected.
    """
    from palyra.tools.policy.cases import read_cases, run_cases  # noqa: PLC0415 - loads the engine

    try:
        outcomes = run_cases(_folder(options, folder), read_cases(file))
    except Rejected as error:
        raise CommandFailed(
            error.message, "docs/operations.md shows a file of cases", code=USAGE
        ) from None
    failed = [outcome for outcome in outcomes if not outcome.passed]
    if options.as_json:
        print_json({"outcomes": outcomes})
    for outcome in [] if options.as_json else outcomes:
        mark = "ok  " if outcome.passed else "FAIL"
        say(f"{mark} {outcome.name}", fg="green" if outcome.passed else "red")
        if not outcome.passed:
            say(f"     expected {outcome.expected}, found {outcome.found}: {outcome.reason}")
    if failed:
        raise SystemExit(FAILED)


@policy.command()
@click.argument("name", type=click.Choice(["coding", "research", "locked"]))
@click.option("--undo", "removes", is_flag=True, help="Remove the preset, unless it was edited.")
@click.option(
    "--policies", "folder", type=GivenPath(file_okay=False), help="Default: the configured folder."
)
@shared_options
def init(options: Options, name: "PresetName", folder: Path | None, *, removes: bool) -> None:
    """Write the preset NAME to a file of its own in the policy folder, without a daemon.

    An existing file is never changed.  A running daemon reloads its policies within seconds.
    """
    from palyra.tools.policy.presets import (  # noqa: PLC0415 - loads the engine
        remove_preset,
        write_preset,
    )

    chosen = _folder(options, folder)
    act = remove_preset if removes else write_preset
    try:
        preset = act(chosen, name)
    except (Rejected, Unavailable) as error:
        raise CommandFailed(error.message, "palyra policy check examines the folder") from None
    if options.as_json:
        print_json(preset)
        return
    done = "removed" if removes else "wrote"
    say(f"{done} {preset.file}: {pluralize(len(preset.rules), 'rule')}", fg="green")
    if removes:
        return
    for line in preset.cedar.partition("\n\n")[0].splitlines():
        say(line.removeprefix("// ").removeprefix("//"), dim=True)
    say(f"in force within seconds; palyra policy init {name} --undo removes it")


@policy.command()
@click.option(
    "--apply", "number", type=click.IntRange(1), help="Apply the suggestion with this number."
)
@click.option(
    "--answers",
    type=click.IntRange(2, 1_000),
    default=MIN_ANSWERS,
    show_default=True,
    help="Answers that a rule has to save.",
)
@click.option(
    "--folders",
    is_flag=True,
    help="Suggest rules for folders; they allow paths that no person has seen.",
)
@shared_options
def suggest(options: Options, number: int | None, answers: int, *, folders: bool) -> None:
    """Suggest rules that would have given the answers that people gave.

    Each rule was compared with every recorded decision: it would have allowed nothing that was
    denied, left unanswered, or never asked.  Nothing changes without --apply.
    """
    found = talk(
        options, lambda client: client.suggest_policies(min_answers=answers, folders=folders)
    )
    if number is None:
        if options.as_json:
            print_json(found)
        else:
            _print_suggestions(found)
        return
    if number > len(found.suggestions):
        raise CommandFailed(
            f"there is no suggestion {number}; now there are {len(found.suggestions)}",
            "palyra policy suggest lists them",
            code=USAGE,
        )
    chosen = found.suggestions[number - 1]
    applied = talk(
        options,
        lambda client: client.apply_suggestion(
            chosen.suggestion_id, min_answers=answers, folders=folders
        ),
    )
    if options.as_json:
        print_json(applied)
        return
    say(f"applied {chosen.suggestion_id}: {chosen.title}", fg="green")
    say(f"{applied.file}; in force within seconds; palyra policy undo removes it")


@policy.command()
@click.option(
    "--from",
    "approval_id",
    type=IdType("approval_id", is_latest_allowed=False),
    required=True,
    help="Approval whose call is to be allowed.",
)
@click.option("--dry-run", is_flag=True, help="Show the rule and its reach, and write nothing.")
@shared_options
def allow(options: Options, approval_id: str, *, dry_run: bool) -> None:
    """Write the narrowest rule for the call of an approval, and show it with its reach.

    The exit code is 1 if no rule is offered; the reason says what would work.
    """
    found = talk(
        options,
        lambda client: (
            client.find_rule_for(approval_id) if dry_run else client.allow_from(approval_id)
        ),
    )
    if options.as_json:
        print_json(found)
    elif found.refused:
        raise CommandFailed(f"no rule: {visible(found.refused)}", "nothing was changed")
    else:
        _print_rule(found)
    if found.refused:
        raise SystemExit(FAILED)


def _print_rule(found: RuleFor) -> None:
    say(found.title, bold=True)
    for line in found.cedar.splitlines():
        say(f"   {line}", dim=True)
    calls = pluralize(found.calls, "recorded call")
    say(f"would have allowed {calls}, {found.asked} of them asked about")
    for call in found.reach:
        say(f"   {call.run_id}: {visible(call.summary)}")
    if found.file:
        say(f"wrote {found.file}; in force within seconds", fg="green")
        say(f"palyra policy undo {found.suggestion_id} removes it")
    else:
        say("nothing was written")


@policy.command()
@click.argument("suggestion_id", required=False)
@shared_options
def undo(options: Options, suggestion_id: str | None) -> None:
    """Remove the rule of an applied suggestion; default: the one applied last."""
    undone = talk(options, lambda client: client.undo_suggestion(suggestion_id))
    if options.as_json:
        print_json(undone)
    else:
        say(f"removed {undone.suggestion_id}: {undone.file}", fg="green")


def _print_suggestions(found: SuggestionList) -> None:
    proof = found.proof
    for number, each in enumerate(found.suggestions, start=1):
        answers, runs = pluralize(each.answers, "answer"), pluralize(each.runs, "run")
        say(f"{number}. {each.title}", bold=True)
        say(f"   saves {answers} of {runs}; {visible(each.principal)}, {visible(each.agent)}")
        for line in each.cedar.splitlines():
            say(f"   {line}", dim=True)
        for call in each.calls:
            say(f"   would have allowed {call.run_id}: {visible(call.summary)}")
    if not found.suggestions:
        say("no rule is suggested: too few equal answers in different runs")
    say(
        f"compared with {pluralize(proof.decisions, 'recorded decision')}: {proof.denied} denied, "
        f"{proof.unanswered} unanswered, {proof.never_asked} never asked; none of these would have "
        "been allowed"
    )
    for applied in found.applied:
        edited = ", edited since" if applied.is_edited else ""
        say(f"applied: {applied.suggestion_id} {age(applied.applied_ms)} ago{edited}", dim=True)


def _folder(options: Options, folder: Path | None) -> Path:
    return load_config(options.home, None).policy_dir if folder is None else folder
