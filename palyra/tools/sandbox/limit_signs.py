"""Error messages of programs that met a limit of the sandbox.  Pure.

The kernel reports few limits to anybody but the program itself: for most, an error number in a system
call is all there is.  So these are words of C libraries, shells and language runtimes for those
numbers (strerror(3)).  Words prove nothing, because a program may print any; they are a hint.
"""

from collections.abc import Mapping

# By kind, which is also a value of `ProcessExit.limit` where the kernel reports that one.
LIMIT_SIGNS: Mapping[str, tuple[str, ...]] = {
    "open files": (
        "EMFILE", "Too many open files", "too many open files", "No file descriptors available",
    ),
    "processes": (
        "can't start new thread", "pthread_create", "unable to create native thread",
        "failed to create new OS thread", "failed to spawn thread", "Cannot fork", "fork: retry",
        "fork: Resource temporarily unavailable", "[Errno 11] Resource temporarily unavailable",
        "EAGAIN",
    ),
    "memory": (
        "ENOMEM", "Cannot allocate memory", "cannot allocate memory", "MemoryError", "out of memory",
        "Out of memory", "OutOfMemoryError", "std::bad_alloc", "memory allocation of",
        "Could not reserve enough space", "virtual memory exhausted", "memory exhausted",
    ),
    "file size": ("EFBIG", "File too large", "file too large", "File size limit exceeded", "file size limit exceeded"),
    "cpu": ("CPU time limit exceeded", "Cputime limit exceeded"),
    "temporary space": ("ENOSPC", "No space left on device", "no space left on device"),
}  # fmt: skip


def find_limit_signs(text: str) -> dict[str, str]:
    """Return the kinds of limits that the text points to, each with the words that do."""
    found = {
        kind: next((sign for sign in signs if sign in text), "")
        for kind, signs in LIMIT_SIGNS.items()
    }
    return {kind: sign for kind, sign in found.items() if sign}
