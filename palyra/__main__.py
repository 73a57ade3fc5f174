"""`python -m palyra`, and the console script."""

import os
import sys

from palyra.cli.command.streams import prepare_text


def main() -> None:
    """Run the command line.

    Permissions of the owner are never masked: what a process makes, it can use (`umask 0777`).
    """
    os.umask(os.umask(0o077) & 0o077)
    prepare_text()
    from palyra.cli.main import cli  # noqa: PLC0415 - `serve` needs none of it

    sys.exit(cli())


if __name__ == "__main__":
    main()
