"""From a step to rows of a tape."""

from palyra.core.step import Step
from palyra.core.tape import TapeRow


def tape_rows(step: Step) -> tuple[TapeRow, ...]:
    """The step's events as rows, numbered from the run's next seq before the step."""
    run, accepted = step.run, step.run.accepted
    first = run.next_seq - len(step.drafts)
    return tuple(
        TapeRow(
            run.run_id,
            accepted.session_id,
            first + index,
            step.now_ms,
            draft.kind,
            accepted.principal,
            draft.redacted,
            draft.data,
        )
        for index, draft in enumerate(step.drafts)
    )
