"""Benchmarks against the tools that people use today: what `dpsearch bench` runs."""
