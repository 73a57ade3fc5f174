"""The error taxonomy: one class per party that must act.

Every message shows the offending value (redacted where it may be secret) and the remedy.
`code` is the wire code of protocol v1; `retryable` tells a client whether the same request
can succeed later without a change.  Expected results are values, never exceptions.
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
        self.details = details  # for programs; the message says the same


class ProtocolError(PalyraError):
    """The peer broke the frame rules: error frame, that stream closes, nothing else."""

    code = "protocol_error"


class Rejected(PalyraError):
    """Well-formed but impossible; the caller decides.  Subclasses name the reason."""

    code = "conflict"


class InvalidParams(Rejected):
    """A value is missing, unknown, of the wrong type or out of range."""

    code = "invalid_params"


class NotFound(Rejected):
    """No such thing, or it belongs to somebody else: both answer alike."""

    code = "not_found"


class Forbidden(Rejected):
    """The caller's token lacks the scope."""

    code = "forbidden"


class Unpaired(Forbidden):
    """The sender of a message must be paired with its channel first; the details hold the code."""


class Unauthenticated(Rejected):
    """No token, or one that is unknown, expired or revoked."""

    code = "unauthenticated"


class IllegalState(Rejected):
    """The thing exists but its state does not allow this."""

    code = "illegal_state"


class Conflict(Rejected):
    """Somebody else got there first."""

    code = "conflict"


class IdempotencyConflict(Rejected):
    """The idempotency key was used before with another body."""

    code = "idempotency_conflict"


class DigestMismatch(Rejected):
    """The answer was given to something other than what is asked."""

    code = "digest_mismatch"


class TooLarge(Rejected):
    """A documented size limit was passed; the message names limit and size."""

    code = "too_large"


class Overloaded(PalyraError):
    """A bound was reached: back off for `retry_after_ms`, never retry in a loop."""

    code = "overloaded"
    retryable = True

    def __init__(self, message: str, *, retry_after_ms: int = 250) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class RateLimited(Overloaded):
    """This caller asked too often."""

    code = "rate_limited"


class Draining(Overloaded):
    """The daemon is going down; a restarted one will answer."""

    code = "draining"


class Unavailable(PalyraError):
    """A dependency is down (disk, provider): retried inside the actor, then an incident."""

    code = "unavailable"
    retryable = True
    retry_after_ms: int | None = None  # where it is known when the dependency is tried again


class DiskFull(Unavailable):
    """There is no room for a write: everything goes on by itself once there is."""


class Unreachable(Unavailable):
    """Only a client's: nobody answers, or the connection was lost.  The daemon never says it."""


class ActorGone(PalyraError):
    """Nobody will answer: the actor crashed or stopped for good."""

    code = "unavailable"
    retryable = True


class TooSlow(PalyraError):
    """No answer in time.  Not a `trio.TooSlowError`, which never crosses a module border."""

    code = "timeout"
    retryable = True


class InvariantBroken(PalyraError):
    """Our bug: crash, and let the supervisor decide."""


def innermost(error: BaseException) -> BaseException:
    """The first exception of a group that is none itself."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
