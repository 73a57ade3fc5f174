"""The outcome of a call: redacted first, then cut, then searched for what speaks to the model."""

from typing import TYPE_CHECKING

from palyra.core.redaction.redactor import Redactor
from palyra.core.run.calls import EMPTY_SHA256, ended_with, ended_without
from palyra.core.text.canonical_json import sha256_hex
from palyra.core.tool.spec import ToolOutput
from tests.core.trust.injection_samples import PLAIN_ATTACK

if TYPE_CHECKING:
    from palyra.core.trust.labels import Trust


REDACTOR = Redactor(["a-known-secret-4711"])


def test_output_is_redacted_before_it_is_cut() -> None:
    """A secret at the cut leaves no half of itself; the digest is of what the tool gave."""
    text = "x" * 20 + "a-known-secret-4711" + "y" * 100
    found = ended_with("c1", ToolOutput(text=text), REDACTOR, 45)
    assert "a-known" not in found.output
    assert (True, "succeeded", sha256_hex(text.encode())) == (
        found.is_truncated, found.status, found.raw_sha256,
    )  # fmt: skip


def test_a_truncated_output_is_stored_as_an_artifact() -> None:
    """The complete, redacted output is stored, and the model gets its name."""
    kept: list[str] = []

    def keep(text: str) -> str:
        kept.append(text)
        return "f" * 64

    output = ToolOutput(text="a-known-secret-4711 " * 100)
    found = ended_with("c1", output, REDACTOR, 50, keep)
    assert ["[redacted:known] " * 100] == kept
    assert "artifact_read" in found.output
    assert "f" * 64 == found.artifact
    assert ended_with("c1", ToolOutput(text="short"), REDACTOR, 50, keep).artifact is None
    assert ended_with("c1", output, REDACTOR, 50, lambda _text: None).artifact is None


def test_findings_are_of_what_is_shown() -> None:
    """Class and place in the text on the tape; nothing for the daemon's own words."""
    trusts: list[Trust] = ["external_untrusted", "workspace", "mixed"]
    for trust in trusts:
        output = ToolOutput(text=f"ab {PLAIN_ATTACK}", trust=trust, is_failure=True)
        found = ended_with("c1", output, REDACTOR, 1_000)
        assert (("override:10-42",), trust, "failed") == (found.findings, found.trust, found.status)
    own = ToolOutput(text=PLAIN_ATTACK, trust="trusted_local")
    assert () == ended_with("c1", own, REDACTOR, 1_000).findings
    buried = ToolOutput(text="line\n" * 900 + PLAIN_ATTACK + "\nline" * 900)
    assert () == ended_with("c1", buried, REDACTOR, 1_000).findings


def test_failure_without_output() -> None:
    """Why there is none is redacted and searched as well."""
    error = f"a-known-secret-4711: {PLAIN_ATTACK}"
    found = ended_without("c1", "failed", error, REDACTOR, "workspace")
    assert (f"[redacted:known]: {PLAIN_ATTACK}", "", EMPTY_SHA256) == (
        found.error, found.output, found.raw_sha256,
    )  # fmt: skip
    assert 1 == len(found.findings)
    assert () == ended_without("c1", "timed_out", error, REDACTOR, "trusted_local").findings
