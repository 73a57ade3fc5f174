"""`python -m palyra`, and the console script."""

import sys


def main() -> None:
    """Run the command line."""
    from palyra.cli.main import cli  # noqa: PLC0415 - `serve` needs none of it

    sys.exit(cli())


if __name__ == "__main__":
    main()
