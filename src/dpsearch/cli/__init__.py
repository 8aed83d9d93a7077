"""The command line: one file per command."""

from dpsearch.cli.app import app, main

__all__ = ["app", "main"]
