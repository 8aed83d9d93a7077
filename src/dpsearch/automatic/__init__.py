"""The choice of a family, its hyperparameters and the prior where the user gives none."""

from dpsearch.automatic.choice import (
    Choice,
    check_columns,
    check_kinds,
    choose,
    choose_weighted,
    completed_table,
    resolve_prior,
    takes_gaps,
)
from dpsearch.automatic.learning import MOST_SETTLED, Learned, learn

__all__ = [
    "MOST_SETTLED",
    "Choice",
    "Learned",
    "check_columns",
    "check_kinds",
    "choose",
    "choose_weighted",
    "completed_table",
    "learn",
    "resolve_prior",
    "takes_gaps",
]
