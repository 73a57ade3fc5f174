"""Export of a whole tape with its seal."""

from palyra.client.client import Client
from palyra.core.tape.export import ExportSeal, render_seal
from palyra.errors import NotFound

PAGE_ROWS = 500


async def export_run(client: Client, run_id: str) -> str:
    """Return the run's tape and seal in the deterministic form that `core.tape.export` verifies.

    Raises NotFound for an unknown run and for one without events.
    """
    lines: list[str] = []
    seal: ExportSeal | None = None
    cursor: int | None = -1
    while cursor is not None:
        page = await client.export_tape(run_id, cursor, limit=PAGE_ROWS)
        cursor = page.next_after_seq
        if page.ndjson:
            lines.append(page.ndjson)
            seal = ExportSeal(
                run_id=run_id,
                seq=sum(text.count("\n") for text in lines) - 1,
                public_key=page.public_key,
                signature=page.signature,
            )
    if seal is None:
        raise NotFound(f"{run_id} has no events yet")
    return "".join([*lines, render_seal(seal)])
