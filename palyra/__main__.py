"""`python -m palyra`, and the console script."""

import sys

from palyra.cli.streams import prepare_text


def main() -> None:
    """Run the command line."""
    prepare_text()
    from palyra.cli.main import cli  # noqa: PLC0415 - `serve` needs none of it

    sys.exit(cli())


if __name__ == "__main__":
    main()
