"""Reports: one self-contained HTML file about a fitted model and its data."""

from dpsearch.report.write import write_report

__all__ = ["write_report"]
