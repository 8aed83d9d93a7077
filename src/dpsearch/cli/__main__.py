"""`python -m dpsearch.cli`."""

from dpsearch.cli import main

main()
