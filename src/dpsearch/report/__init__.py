"""A report to look at: one HTML file with everything in it, which asks for nothing else."""

from dpsearch.report.write import write_report

__all__ = ["write_report"]
