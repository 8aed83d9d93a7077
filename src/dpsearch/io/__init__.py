"""Reading tables from files, each format by its own library, and writing tables of results."""

from dpsearch.io.output import labels_table, write_table
from dpsearch.io.read import read_table
from dpsearch.io.table import ModelColumns, Reading, Table

__all__ = ["ModelColumns", "Reading", "Table", "labels_table", "read_table", "write_table"]
