"""Text at the border of the process: arguments, names of files and the three standard streams."""

import codecs
import os
import sys


def prepare_text() -> None:
    """Let the process take and print every character, with any locale and with closed streams."""
    begin_in_utf8()
    open_closed_streams()
    escape_output()


def begin_in_utf8() -> None:
    """Replace the process by one in UTF-8 mode if the locale knows no characters but those of ASCII.

    Otherwise arguments, names of files and paths of the configuration with other characters could not
    be used.  Python chooses the mode itself in the locales C and POSIX, unless PYTHONUTF8=0 forbids it.
    Programs that the process starts inherit it.
    """
    is_ascii = codecs.lookup(sys.getfilesystemencoding()).name == "ascii"
    if is_ascii and sys.orig_argv and not sys.flags.utf8_mode:
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606 - itself


def open_closed_streams() -> None:
    """Open the null device for each standard stream that was closed by the caller (`>&-`).

    Otherwise the next file would get its number, and what is printed would be written into it.
    """
    for number, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            if descriptor != number:
                os.dup2(descriptor, number)
                os.close(descriptor)
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 - for the life of the process


def escape_output() -> None:
    """Print characters that the encoding of the output lacks as escapes of JSON, instead of failing."""
    codecs.register_error("palyra-escape", _escape)
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(errors="palyra-escape")  # type: ignore[union-attr]  # text files, see above


def _escape(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[i : i + 4]}" for i in range(0, len(units), 4)), error.end
