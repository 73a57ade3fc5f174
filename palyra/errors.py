"""Error taxonomy: one class per party that must act.

Every message shows the offending value (redacted where it may be secret) and the remedy.  `code` is
the wire code of protocol v1; `retryable` tells a client whether the same request can succeed later
without a change.  Expected results are values, never exceptions.
"""

from collections.abc import Mapping
from typing import ClassVar


class PalyraError(Exception):
    """Root of all errors raised on purpose."""

    code: ClassVar[str] = "internal"
    retryable: ClassVar[bool] = False

    def __init__(
        self,
        message: str,
        *,
        field: str | None = None,
        details: Mapping[str, str | int] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.details = details  # for programs; the message contains the same facts


class ProtocolError(PalyraError):
    """The peer broke the frame rules: error frame, that stream closes, nothing else."""

    code = "protocol_error"


class Rejected(PalyraError):
    """A well-formed but impossible request; the caller decides.  Subclasses name the reason."""

    code = "conflict"


class InvalidParams(Rejected):
    """A value is missing, unknown, of the wrong type or out of range."""

    code = "invalid_params"


class NotFound(Rejected):
    """The object does not exist or belongs to another principal: both give the same answer."""

    code = "not_found"


class Unreadable(NotFound):
    """Stored content exists and cannot be read."""


class Purged(Unreadable):
    """The content was removed for good, on request."""


class Damaged(Unreadable):
    """A stored event or record does not decode, or is not what was written."""


class Forbidden(Rejected):
    """The caller's token lacks the scope."""

    code = "forbidden"


class Unpaired(Forbidden):
    """The sender of a message must be paired with its channel first; the details hold the code."""


class Unauthenticated(Rejected):
    """The token is missing, unknown, expired or revoked."""

    code = "unauthenticated"


class IllegalState(Rejected):
    """The object exists but its state does not allow the operation."""

    code = "illegal_state"


class Conflict(Rejected):
    """A concurrent change was committed first."""

    code = "conflict"


class IdempotencyConflict(Rejected):
    """The idempotency key was used before with another body."""

    code = "idempotency_conflict"


class DigestMismatch(Rejected):
    """The answer refers to something other than the current question."""

    code = "digest_mismatch"


class TooLarge(Rejected):
    """A documented size limit was exceeded; the message names limit and size."""

    code = "too_large"


class Overloaded(PalyraError):
    """A limit was reached: back off for `retry_after_ms`, never retry in a loop."""

    code = "overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after_ms: int = 250) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class RateLimited(Overloaded):
    """The caller sent too many requests."""

    code = "rate_limited"


class Draining(Overloaded):
    """The daemon is shutting down; after a restart it will answer."""

    code = "draining"


class Suspended(Overloaded):
    """An operator has suspended the daemon; the message names the operator and the time."""

    code = "suspended"


class Unavailable(PalyraError):
    """A dependency is down (disk, provider): retried inside the actor, then an incident."""

    code = "unavailable"
    retryable = True
    retry_after_ms: int | None = None  # if the time of the next attempt is known


class DiskFull(Unavailable):
    """The disk has no room for a write: work resumes by itself once there is room."""


class Unreachable(Unavailable):
    """Raised by clients only: no answer, or the connection was lost.  Never sent by the daemon."""


class TlsFailed(Unreachable):
    """TLS could not be agreed on, as with a certificate of an unknown authority."""


class ActorGone(PalyraError):
    """No answer will come: the actor crashed or stopped for good."""

    code = "unavailable"
    retryable = True


class TooSlow(PalyraError):
    """No answer in time.  Not a `trio.TooSlowError`, which never crosses a module border."""

    code = "timeout"
    retryable = True


class InvariantBroken(PalyraError):
    """A bug in the daemon: crash, and let the supervisor decide."""


def innermost(error: BaseException) -> BaseException:
    """Return the first leaf exception of a nested group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
