"""Benchmarks against the tools that people use today: what `python -m studies peers` runs."""
