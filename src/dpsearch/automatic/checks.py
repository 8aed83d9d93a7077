"""Checks of a table against the family that the user gave or the choice has made."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpsearch.errors import DataError, ParameterError
from dpsearch.families import by_name
from dpsearch.families.base import Family
from dpsearch.tables import CheckedTable, Schema


def takes_gaps(family: Any) -> bool:
    """Whether the estimator's `family` may stand for one that skips missing values."""
    if isinstance(family, Family):
        return family.takes_gaps
    kind = _class_of(family)
    return kind is None or kind.independent_columns


def _class_of(name: Any) -> type[Family] | None:
    """Return the class that a name stands for; None for 'auto' and for an unknown name."""
    try:
        return None if name == "auto" else by_name(name)
    except ParameterError:
        return None


def check_columns(table: CheckedTable) -> None:
    """Raise `DataError` if a column of a table has no value at all."""
    if table.gaps and np.isnan(table.matrix).all(axis=0).any():
        column = int(np.isnan(table.matrix).all(axis=0).argmax())
        raise DataError("{place} of X has no values: leave it out", column=column)


def check_kinds(schema: Schema, family: Any) -> None:
    """Raise `DataError` if a family for numbers is given for a column of categories."""
    width = len(schema.columns)
    given = isinstance(family, Family)
    families: list[Any] = family.by_column(width) if given else [_class_of(family)] * width
    for column, own in zip(schema.columns, families, strict=True):
        if column.kind == "category" and getattr(own, "kind", None) not in (None, "category"):
            raise DataError(
                f"{{place}} of X holds categories, which the {own.name} family does not accept:"
                " use family='auto', or families.Product with a Categorical part",
                column=column.name,
            )


def refused(family: Family, table: CheckedTable) -> DataError | None:
    """Return the error about values outside the support of a chosen family; None without any."""
    try:
        (family.with_gaps() if table.gaps and family.takes_gaps else family).check(table.matrix)
    except DataError as error:
        return error
    return None


def holds_for(family: Family, table: CheckedTable, far: Any) -> bool:
    """Whether a family chosen without the far rows holds for them, too.

    It does not if it cannot have their values, or if the columns that it sets aside tell in some
    row what the others do not.
    """
    return not family.contradicted(table.matrix) and refused(family, table.rows(far)) is None
