"""Comparison with tools in common use: `python -m studies peers`."""
