"""`python -m palyra`, and the console script."""

import os
import sys


def main() -> None:
    """Run the command line."""
    open_closed_streams()
    from palyra.cli.main import cli  # noqa: PLC0415 - `serve` needs none of it

    sys.exit(cli())


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


if __name__ == "__main__":
    main()
