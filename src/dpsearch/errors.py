"""The errors that users see.  Each message names the parameter, file, row or column at fault."""

from __future__ import annotations


class DPSearchError(Exception):
    """Base of all errors raised on purpose by dpsearch."""


class DataError(DPSearchError, ValueError):
    """The data cannot be used: a value, shape or type is wrong."""


class DataTypeError(DPSearchError, TypeError):
    """The data hold objects that are not numbers."""


class ParameterError(DPSearchError, ValueError):
    """A parameter is out of its range or unknown."""


class CapabilityError(DPSearchError, ValueError):
    """A solver needs something that the family or prior does not offer."""


class ModelFileError(DPSearchError, ValueError):
    """A model file is damaged, or was not written by dpsearch."""


class WorkersError(DPSearchError, RuntimeError):
    """Work that was sent to other processes or machines is lost."""
