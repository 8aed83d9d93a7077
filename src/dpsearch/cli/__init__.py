"""The command line: one file per command."""

import os
import sys


def main() -> None:
    """Run the command that the arguments name."""
    try:
        from dpsearch._extras import naming_extras
        from dpsearch.errors import MissingLibraryError

        try:
            with naming_extras("commands"):
                from dpsearch.cli.app import run
        except MissingLibraryError as error:
            sys.exit(f"dpsearch: {error}")
    except KeyboardInterrupt:
        os.write(2, b"dpsearch: interrupted\n")
        os._exit(130)
    run()
