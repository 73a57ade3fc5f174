"""`palyra bench`: run many cases against a daemon, replay the runs and compare results."""

from __future__ import annotations

import math
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from palyra.cli.command.errors import DONE, FAILED, INTERRUPTED, PARTIAL, stop_for
from palyra.cli.command.options import GivenPath, shared_options
from palyra.cli.command.output import ProgressLine, print_json, print_table, say
from palyra.cli.command.talk import Options, verdict
from palyra.cli.tape import find_key, is_signed
from palyra.cli.usage import render_cost
from palyra.core.text.visible import pluralize
from palyra.errors import PalyraError

if TYPE_CHECKING:
    from pathlib import Path

    from palyra.core.replay.report import Divergence
    from palyra.harness.bench import BenchReport
    from palyra.harness.compare import Comparison, Figures, Pair
    from palyra.harness.driver import CaseCounts
    from palyra.harness.replays import Replays
    from palyra.harness.summary import BenchSummary


APPROVALS = ("allow", "deny", "ask")
SHOW_EVERY_S = 0.2
RESULTS = GivenPath(exists=True, file_okay=False)
FILE = GivenPath(exists=True, dir_okay=False)


def _some_time(
    _context: click.Context, _option: click.Parameter, value: float | None
) -> float | None:
    """Reject "nan" as a number of seconds; click's range check accepts it."""
    if value is not None and math.isnan(value):
        raise click.BadParameter(f"{value} is no number of seconds.")
    return value


@click.group()
def bench() -> None:
    """Run many cases; resume, replay and compare them."""


@bench.command()
@click.argument("file", type=FILE)
@click.option(
    "--out",
    type=GivenPath(file_okay=False),
    required=True,
    help="Directory for the results; a directory of an earlier run is continued.",
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 2_000),
    default=8,
    show_default=True,
    help="Cases that are run at once.",
)
@click.option(
    "--limit", type=click.IntRange(1), help="Run only the first cases, up to this number."
)
@click.option(
    "--repeat",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Run each case this many times, with seed, seed + 1, ….",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of cases that set none.")
@click.option("--model", help="Model of cases that name none.")
@click.option(
    "--approval",
    type=click.Choice(APPROVALS),
    default="deny",
    show_default=True,
    help="How approvals are answered in cases that do not say.",
)
@click.option(
    "--deadline",
    "deadline_s",
    type=click.FloatRange(min=0, min_open=True),
    callback=_some_time,
    help="Seconds after which the command stops as with Ctrl-C.",
)
@click.option(
    "--own", "is_own", is_flag=True, help="Start a separate daemon, even if one is running."
)
@click.option("--scripts", type=FILE, help="Scripts for the scripted model of the separate daemon.")
@click.option("--config", type=FILE, help="Configuration file of the separate daemon.")
@click.option(
    "--workspace", type=RESULTS, help="Workspace of the separate daemon; default OUT/workspace."
)
@shared_options
def run(options: Options, **given: Any) -> None:  # noqa: ANN401 - as click calls it
    """Run every case of FILE (one JSON object a line) that has no result in --out yet.

    The daemon is that of --home or --url or, when none runs, one started for the bench with its
    data in OUT/daemon.  Ctrl-C stops the command; the same command continues where it stopped.
    """
    from palyra.harness.bench import BenchOptions, run_bench  # noqa: PLC0415 - help must be instant

    order = BenchOptions(home=options.home, url=options.url, **given)
    screen = Screen()
    report: BenchReport = run_trio(partial(run_bench, order, screen.show))
    screen.clear()
    if report.summary is not None:
        if options.as_json:
            print_json(report.summary)
        else:
            print_summary(report.summary, order.out)
    raise SystemExit(judge(report))


def run_trio(work: Any) -> Any:  # noqa: ANN401 - an async function and its result
    """Run an async function in trio and return its result.

    Raises the error that `verdict` selects, for every expected failure.
    """
    import trio  # noqa: PLC0415 - help must be instant

    results: list[Any] = []
    try:
        results.append(trio.run(work))
    except* (KeyboardInterrupt, PalyraError, OSError) as group:
        raise verdict(group) from None
    return results[0]


def judge(report: BenchReport) -> int:
    """Return the exit code: 0 only if every case is done and met its expectations."""
    if report.ending == "interrupted":
        say("interrupted: run the same command to continue", err=True, fg="yellow")
        return INTERRUPTED
    if report.ending == "late":
        say("the deadline has passed: run the same command to continue", err=True, fg="yellow")
        return PARTIAL
    summary = report.summary
    is_whole = summary is not None and not summary.unmet and set(summary.states) <= {"done"}
    return DONE if is_whole else PARTIAL


class Screen:
    """Progress display on one line of a terminal, redrawn at most every SHOW_EVERY_S."""

    def __init__(self) -> None:
        self._line = ProgressLine()
        self._shown_s = 0.0

    def show(self, tally: CaseCounts) -> None:
        """Print the counts of the cases, unless the line was redrawn less than SHOW_EVERY_S ago."""
        left_s = (tally.total - tally.done) / max(1e-9, tally.per_s)
        text = (
            f"{tally.done}/{tally.total}  {tally.per_s:.1f}/s  {tally.unmet} unmet  "
            f"{tally.fallen} not done  {left_s:.0f} s left"
        )
        self._show(text)

    def _show(self, text: str) -> None:
        now_s = time.perf_counter()
        if now_s - self._shown_s < SHOW_EVERY_S:
            return
        self._shown_s = now_s
        self._line.show(text)

    def count(self, done: int) -> None:
        """Print the number of replayed runs."""
        self._show(f"{done} replayed")

    def clear(self) -> None:
        """Erase the progress line."""
        self._line.clear()


def print_summary(summary: BenchSummary, out: Path) -> None:
    """Print the main figures of a summary; summary.json has all of them."""
    states = ", ".join(f"{count} {state}" for state, count in sorted(summary.states.items()))
    took = summary.took_ms
    rows = [
        ("results", f"{summary.results} of {summary.wanted}: {states or 'none'}"),
        ("expectations", f"{summary.met} met, {summary.unmet} unmet, {summary.unchecked} none"),
        ("took", f"median {_ms(took.median)}, p90 {_ms(took.p90)}, most {_ms(took.most)}"),
        ("tokens", f"{summary.input_tokens} in, {summary.output_tokens} out"),
        ("cost", render_cost(summary.cost_usd_micros, summary.unpriced_calls)),
        ("tool calls", summary.tool_calls),
        ("models", ", ".join(summary.models) or "-"),
        ("written to", out),
    ]
    print_table(("WHAT", "VALUE"), rows, empty="")


def _ms(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f} ms"


@bench.command()
@click.argument("out", type=RESULTS)
@click.option(
    "--strict",
    is_flag=True,
    help="Also evaluate the current policies of the daemon that ran the cases.",
)
@shared_options
def replay(options: Options, out: Path, *, strict: bool) -> None:
    """Replay every run in OUT without cost, and name the first divergence of each.

    Without --strict no daemon is needed: the tapes in OUT are verified, then replayed.  The exit
    code is 1 when a run diverges or a tape cannot be used.
    """
    screen = Screen()
    try:
        found = _replay(options, out, screen, strict=strict)
    except PalyraError as error:
        raise stop_for(error) from None
    screen.clear()
    if options.as_json:
        print_json(found)
    else:
        print_replays(found)
    raise SystemExit(DONE if found.holds else FAILED)


def _replay(options: Options, out: Path, screen: Screen, *, strict: bool) -> Replays:
    from palyra.harness.replays import replay_strictly, replay_tapes  # noqa: PLC0415
    from palyra.harness.results import DAEMON, find_manifest  # noqa: PLC0415 - as above
    from palyra.harness.target import OWN  # noqa: PLC0415

    if strict:
        replays: Replays = run_trio(partial(replay_strictly, out, options.home, screen.count))
        return replays
    manifest = find_manifest(out)
    is_own = manifest is not None and manifest.plan.daemon == OWN
    key = find_key(out / DAEMON if is_own else options.home, None)
    return replay_tapes(out, is_signed, key, screen.count)


def print_replays(found: Replays) -> None:
    """Print the runs that diverge or are unusable, then the counts."""
    rows = [
        (one.id, one.repeat, one.run_id, _describe(one.problem, one.divergence))
        for one in found.exceptions
    ]
    if rows:
        print_table(("CASE", "REPEAT", "RUN", "WHAT"), rows, empty="")
    say(
        f"{found.matched} match, {found.diverged} diverge, {found.unusable} unusable",
        fg="green" if found.holds else "red",
    )


def _describe(problem: str | None, divergence: Divergence | None) -> str:
    if divergence is None:
        return problem or "-"
    return (
        f"diverges at seq {divergence.seq}, {divergence.kind or 'the end'}, {divergence.field}: "
        f"{divergence.expected or '-'} → {divergence.found or '-'}"
    )


@bench.command()
@click.argument("first", type=RESULTS)
@click.argument("second", type=RESULTS)
@shared_options
def compare(options: Options, first: Path, second: Path) -> None:
    """Show what changed from FIRST to SECOND, case by case.

    The exit code is 4 when an expectation that was met no longer is.
    """
    from palyra.harness.compare import compare as compare_results  # noqa: PLC0415

    try:
        found = compare_results(first, second)
    except PalyraError as error:
        raise stop_for(error) from None
    if options.as_json:
        print_json(found)
    else:
        print_comparison(found)
    raise SystemExit(PARTIAL if found.lost else DONE)


def print_comparison(found: Comparison) -> None:
    """Print the cases whose outcome changed, then the figures of both sides."""
    columns = ("CASE", "REPEAT", "MET", "STATE", "REASON", "ANSWER", "COST", "TIME")
    changed = [_row(pair) for pair in found.pairs if pair.is_changed]
    print_table(columns, changed, empty=f"{pluralize(len(found.pairs), 'pair')}, all ended alike")
    for name, alone in (("first", found.only_first), ("second", found.only_second)):
        if alone:
            say(f"only in the {name}: {len(alone)}, {alone[0][0]!r} among them", fg="yellow")
    say()
    sides = [_figures_row("first", found.first), _figures_row("second", found.second)]
    print_table(("SIDE", "MET", "UNMET", "COST", "TOKENS", "MEDIAN"), sides, empty="")
    say(f"{found.lost} lost, {found.won} won", fg="red" if found.lost else None)


def _row(pair: Pair) -> tuple[object, ...]:
    return (
        pair.id,
        pair.repeat,
        _change(*(_met(met) for met in pair.met)),
        _change(*pair.state),
        _change(*(reason or "-" for reason in pair.reason)),
        "same" if pair.is_same_answer else "differs",
        "unknown" if pair.is_unpriced else f"{pair.cost_usd_micros / 1e6:+.6f}",
        "-" if pair.took_ms is None else f"{pair.took_ms:+d} ms",
    )


def _met(met: bool | None) -> str:  # noqa: FBT001 - a value, not a switch
    return {True: "yes", False: "no", None: "-"}[met]


def _change(before: str, after: str) -> str:
    return before if before == after else f"{before} → {after}"


def _figures_row(name: str, figures: Figures) -> tuple[object, ...]:
    return (
        name,
        figures.met,
        figures.unmet,
        render_cost(figures.cost_usd_micros, figures.unpriced_calls),
        figures.tokens,
        _ms(figures.median_took_ms),
    )
