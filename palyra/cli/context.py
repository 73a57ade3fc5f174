"""`palyra context RUN`: the prompt of a turn, segment by segment."""

import click

from palyra.cli.command.names import id_argument
from palyra.cli.command.options import shared_options
from palyra.cli.command.output import print_json, print_table, say
from palyra.cli.command.talk import Options, talk
from palyra.core.context.views import ContextExplained, ReferencePreview, ReferenceView, SegmentView


@click.command(short_help="Show what a turn's prompt was made of.")
@id_argument("run_id")
@click.option("--turn", type=click.IntRange(1), help="Number of the turn, instead of the last one.")
@shared_options
def context(options: Options, run_id: str, turn: int | None) -> None:
    """Show every segment of the prompt of a turn of RUN_ID, kept or dropped, with the reason."""
    found = talk(options, lambda client: client.explain_context(run_id, turn))
    if options.as_json:
        print_json(found)
        return
    columns = ("LAYER", "TOKENS", "KEPT", "PRIORITY", "TRUST", "WHAT")
    print_table(columns, [_row(segment) for segment in found.segments], empty="no segments")
    say(describe_explained(found), dim=True)


def _row(segment: SegmentView) -> tuple[object, ...]:
    parts = [
        segment.name,
        f"{segment.runs} runs" if segment.runs is not None else "",
        f"{segment.messages} messages" if segment.messages is not None else "",
        f"{segment.stubs} stubs" if segment.stubs else "",
        segment.why.replace("_", " "),
        segment.note,
        f"suspicious: {', '.join(segment.findings)}" if segment.findings else "",
    ]
    priority = f"{segment.priority}, protected" if segment.protected else segment.priority
    return (
        segment.layer,
        segment.tokens,
        "yes" if segment.kept else "no",
        priority,
        segment.trust or "-",
        "; ".join(part for part in parts if part) or "-",
    )


def describe_explained(found: ContextExplained) -> str:
    """Return the size of the prompt in words."""
    text = f"turn {found.turn}, attempt {found.attempt}, {found.model}: {found.input_tokens} tokens"
    budget = found.budget
    if budget is None or not budget.window:
        return f"{text}; the window of the model is not known (models.routes)"
    return (
        f"{text}; {budget.needed} needed of {budget.available} available in a window of "
        f"{budget.window} (answer {budget.reserved}, tools {budget.tools}, margin {budget.margin}); "
        f"estimate times {budget.factor_bps / 10_000:.2f}"
    )


def print_preview(options: Options, preview: ReferencePreview) -> None:
    """Print the cost of a message, a line for each reference."""
    if options.as_json:
        print_json(preview)
        return
    rows = [_preview_row(each) for each in (*preview.references, *preview.project_files)]
    print_table(("REFERENCE", "TOKENS", "TRUST", "WHAT"), rows, empty="no references")
    say(f"{preview.tokens} tokens, {preview.message_tokens} of them the message", dim=True)


def _preview_row(each: ReferenceView) -> tuple[object, ...]:
    suspicious = f"suspicious: {', '.join(each.findings)}" if each.findings else ""
    what = "; ".join(part for part in (each.error, each.note, suspicious) if part)
    return each.reference, each.tokens, each.trust or "-", what or "-"
