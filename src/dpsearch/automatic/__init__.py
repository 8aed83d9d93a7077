"""The choice of a family, its hyperparameters and the prior where the user gives none."""

from dpsearch.automatic.checks import check_columns, check_kinds, takes_gaps
from dpsearch.automatic.choice import (
    Choice,
    choose,
    choose_weighted,
    completed_table,
    recognise_codes,
    recognises_codes,
    resolve_prior,
)
from dpsearch.automatic.learning import learn
from dpsearch.automatic.suspicious import codes_in_words

__all__ = [
    "Choice", "check_columns", "check_kinds", "choose", "choose_weighted", "codes_in_words",
    "completed_table", "learn", "recognise_codes", "recognises_codes", "resolve_prior",
    "takes_gaps",
]  # fmt: skip
