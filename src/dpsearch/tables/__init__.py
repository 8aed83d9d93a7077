"""Tables in memory: what their columns hold, and matrices of numbers that have been checked."""

from dpsearch.tables.checked import CheckedTable, content_order
from dpsearch.tables.codes import Codes, without_codes
from dpsearch.tables.columns import KINDS, Column, Kind
from dpsearch.tables.entries import Triage
from dpsearch.tables.frames import is_frame, library_of, read_column, replace_columns
from dpsearch.tables.rules import GIVEN_KINDS
from dpsearch.tables.schema import UNKNOWN, Schema, Triaged, triage, triaged, triaged_columns

__all__ = [
    "GIVEN_KINDS", "KINDS", "UNKNOWN", "CheckedTable", "Codes", "Column", "Kind", "Schema",
    "Triage", "Triaged", "content_order", "is_frame", "library_of", "read_column",
    "replace_columns", "triage", "triaged", "triaged_columns", "without_codes",
]  # fmt: skip
