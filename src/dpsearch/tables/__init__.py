"""Tables in memory: what their columns hold, and matrices of numbers that have been checked."""

from dpsearch.tables.checked import CheckedTable, content_order
from dpsearch.tables.columns import KINDS, Column, Kind
from dpsearch.tables.frames import is_frame, is_mixed, library_of, read_column, replace_columns
from dpsearch.tables.kinds import DISTINCT, are_counts
from dpsearch.tables.schema import Schema

__all__ = [
    "DISTINCT",
    "KINDS",
    "CheckedTable",
    "Column",
    "Kind",
    "Schema",
    "are_counts",
    "content_order",
    "is_frame",
    "is_mixed",
    "library_of",
    "read_column",
    "replace_columns",
]
