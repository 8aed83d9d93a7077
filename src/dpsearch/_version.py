"""The version of dpsearch."""

__version__ = "0.1.0"
