"""The command line: one file per command."""

import sys


def main() -> None:
    """Run the command that the arguments name."""
    from dpsearch._extras import naming_extras
    from dpsearch.errors import MissingLibraryError

    try:
        with naming_extras("commands"):
            from dpsearch.cli.app import run
    except MissingLibraryError as error:
        sys.exit(f"dpsearch: {error}")
    run()
