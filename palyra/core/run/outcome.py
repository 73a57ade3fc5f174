"""The outcome of a call: redact its output, truncate it to an excerpt, scan the excerpt.

Only the excerpt is scanned for injected instructions.  The model reads the rest of a long output
page by page, by calls with outputs of their own.
"""

from collections.abc import Callable

from palyra.core.redaction.redactor import Redactor
from palyra.core.run.inputs import CallEnded
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.text.excerpt import excerpt
from palyra.core.tool.artifacts import NAME_CHARS
from palyra.core.tool.spec import OutcomeStatus, ToolOutput
from palyra.core.trust.injection_scan import find_injections
from palyra.core.trust.labels import Trust

EMPTY_SHA256 = sha256_hex(b"")


def ended_with(
    call_id: str,
    output: ToolOutput,
    redactor: Redactor,
    excerpt_bytes: int,
    keep: Callable[[str], str | None] | None = None,
) -> CallEnded:
    """Return the outcome of a call with an output.

    `keep` stores the whole redacted output if the excerpt is shorter, and returns the name of the
    artifact, or None if it could not be stored.
    """
    redacted, _ = redactor.redact_text(output.text)
    shown, is_cut = excerpt(redacted, excerpt_bytes)
    artifact = keep(redacted) if keep is not None and is_cut else None
    return CallEnded(
        call_id=call_id,
        status="failed" if output.is_failure else "succeeded",
        output=shown if artifact is None else f"{shown}\n{_whole_note(artifact)}",
        raw_sha256=sha256_hex(output.text.encode("utf-8", "surrogatepass")),
        is_truncated=is_cut or output.is_truncated,
        executor=output.executor,
        enforcement=output.enforcement,
        artifact=artifact,
        trust=output.trust,
        findings=_findings(shown, output.trust),
    )


def _whole_note(artifact: str) -> str:
    return f"[all of it: artifact_read with artifact {artifact[:NAME_CHARS]}]"


def ended_without(
    call_id: str, status: OutcomeStatus, error: str, redactor: Redactor, trust: Trust
) -> CallEnded:
    """Return the outcome of a call without an output; `trust` labels the text of `error`."""
    shown, _ = redactor.redact_text(error)
    return CallEnded(
        call_id=call_id,
        status=status,
        output="",
        error=shown,
        raw_sha256=EMPTY_SHA256,
        trust=trust,
        findings=_findings(shown, trust),
    )


def _findings(text: str, trust: Trust) -> tuple[str, ...]:
    return () if trust == "trusted_local" else tuple(map(str, find_injections(text)))
