"""The errors that users see; each message names the parameter, file, row or column at fault."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Self


class DPSearchError(Exception):
    """Base class of all errors that dpsearch raises deliberately.

    The message is composed from a text and the fields when it is shown.  A caller that knows more
    (the name of the file, the names of the columns, the number of the first row of a block) sets
    the fields and raises the error again; see `located`.

    In the text, `{parameter}` stands for the parameter and `{place}` for the row and the column.
    If the text does not mention the place, it is written before the text, next to the source.

    Attributes
    ----------
    parameter
        The name of the parameter at fault.
    row
        The number of the row, counted from 0.
    line
        The line of the file that holds the row, counted from 1; it is shown instead of the row.
    column
        The name of the column, or its number if it has no name.
    source
        The file or batch in which row, line and column are counted.
    """

    def __init__(
        self,
        text: str = "",
        *,
        parameter: str | None = None,
        row: int | None = None,
        line: int | None = None,
        column: int | str | None = None,
        source: object = None,
    ) -> None:
        super().__init__(text)
        self.parameter = parameter
        self.row = None if row is None else int(row)
        self.line = line
        self.column = int(column) if isinstance(column, numbers.Integral) else column
        self.source = None if source is None else str(source)

    @property
    def place(self) -> str:
        """The row and the column as the message names them; "" if neither is known."""
        row = f"row {self.row}" if self.line is None else f"line {self.line}"
        known = [row] if self.row is not None or self.line is not None else []
        return ", ".join(known + ([] if self.column is None else [f"column {self.column!r}"]))

    def __str__(self) -> str:
        text, place, source = super().__str__(), self.place, self.source
        if self.parameter is not None:
            text = text.replace("{parameter}", self.parameter, 1)
        if source is not None or self.line is not None:  # it is a file, and not the argument X
            text = text.replace("X at {place}", "{place}", 1)
        # Only the first marker is one: what follows it may come from the data.
        if place and "{place}" in text:
            text = text.replace("{place}", place, 1)
        elif place:
            source = place if source is None else f"{source}, {place}"
        return text if source is None else f"{source}: {text}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def locate(
        self, source: str | None = None, rows: Any = None, columns: Sequence[Any] | None = None
    ) -> None:
        """Set the source, row and column of the error; an error that has a source keeps its own.

        `rows` is the number of the first row, or the numbers of all rows; `columns` are the names
        or numbers of all columns.
        """
        if self.source is not None:
            return
        if rows is not None and self.row is not None:
            first = isinstance(rows, numbers.Integral)
            self.row = self.row + int(rows) if first else int(rows[self.row])
        if columns is not None and isinstance(self.column, int) and self.column < len(columns):
            self.column = columns[self.column]
        self.source = source


@contextmanager
def located(
    source: str | None = None, rows: Any = None, columns: Sequence[Any] | None = None
) -> Iterator[None]:
    """Let errors about a block of rows or columns name their place in the whole; see `locate`."""
    try:
        yield
    except DPSearchError as error:
        error.locate(source, rows, columns)
        raise


@contextmanager
def plain_interrupts() -> Iterator[None]:
    """Raise Ctrl-C and termination as KeyboardInterrupt and SystemExit.

    If a signal arrives while Numba prepares a call, Python raises a SystemError with the signal's
    exception as its cause, or as the cause of its cause if one call prepares another.
    """
    try:
        yield
    except SystemError as error:
        cause: BaseException | None = error
        while isinstance(cause, SystemError):
            cause = cause.__cause__ or cause.__context__
        if isinstance(cause, (KeyboardInterrupt, SystemExit)):
            raise cause from None
        raise


class DataError(DPSearchError, ValueError):
    """The data cannot be used: a value, shape or type is wrong.

    `cells` holds the row numbers, the column numbers and the values of all cells that are wrong in
    the same way.
    """

    def __init__(self, text: str = "", *, cells: Any = None, **fields: Any) -> None:
        super().__init__(text, **fields)
        self.cells = cells

    def locate(
        self, source: str | None = None, rows: Any = None, columns: Sequence[Any] | None = None
    ) -> None:
        numbered = isinstance(self.column, int) and self.source is None
        if self.cells is not None and self.source is None:
            own, among, values = self.cells
            if columns is not None and numbered:
                among = [columns[d] for d in among]
            if rows is not None and not isinstance(rows, numbers.Integral):
                own = [rows[i] for i in own]
            self.cells = own, among, values
        super().locate(source, rows, columns)


class DataTypeError(DPSearchError, TypeError):
    """The data hold objects that are not numbers."""


class ParameterError(DPSearchError, ValueError):
    """A parameter is out of its range or unknown."""

    @classmethod
    def of(cls, parameter: str, text: str, **place: Any) -> Self:
        """Return the error whose message is the name of the parameter followed by a text."""
        space = "" if text[0] in ":,[" else " "
        return cls(f"{{parameter}}{space}{text}", parameter=parameter, **place)

    @classmethod
    def must(cls, parameter: str, wanted: str, given: object) -> Self:
        """Return the error that says what a parameter must be or do, and what was given."""
        return cls.of(parameter, f"must {wanted}, got {given!r}")

    @classmethod
    def unknown(cls, parameter: str, what: str, given: str, known: Iterable[str]) -> Self:
        """Return the error about a name that is not among those known."""
        names = ", ".join(known)
        return cls(f"unknown {what} {given!r}: known are {names}", parameter=parameter)


class CapabilityError(DPSearchError, ValueError):
    """A solver needs something that the family or prior does not offer."""


class ProofError(DPSearchError, RuntimeError):
    """A proved bound lies below the value of a partition; please report this error."""


class ModelFileError(DPSearchError, ValueError):
    """A model file is damaged, or was not written by dpsearch."""


class MissingLibraryError(DPSearchError, ImportError):
    """Something needs a library that is not installed; the message says how to install it."""


class CheckpointWarning(RuntimeWarning):
    """A checkpoint could not be written; the run went on without it."""


class UnseenValuesWarning(UserWarning):
    """New rows have values that a column of the model cannot hold; they are treated as missing."""

    def __init__(self, column: str, count: int, example: object, levels: bool = True) -> None:
        super().__init__(column, count, example, levels)
        self.column, self.count, self.example, self.levels = column, count, example, levels

    def __str__(self) -> str:
        why = "the fit did not see" if self.levels else "cannot be read"
        return self._in_words(why, repr(self.example))

    def _in_words(self, why: str, example: str) -> str:
        one = self.count == 1
        values, such, they = ("value", "", "it is") if one else ("values", "such as ", "they are")
        return (
            f"column {self.column!r} has {self.count:,} {values} that {why}, {such}{example}:"
            f" {they} treated as missing"
        )


class OutsideSupportWarning(UnseenValuesWarning):
    """New rows have values to which the family chosen for their column gives no probability."""

    def __init__(self, column: str, count: int, example: object, row: int, family: str) -> None:
        super().__init__(column, count, example)
        self.args = (column, count, example, row, family)
        self.row, self.family = row, family

    def __str__(self) -> str:
        why = f"the {self.family} family, which was chosen for it, cannot hold"
        return self._in_words(why, f"{self.example} in row {self.row}")


class AbsentColumnsWarning(UserWarning):
    """New rows lack columns of the model; all values of these columns are treated as missing."""


class DepartureWarning(UserWarning):
    """A batch of a stream is far less probable than the rows before it."""


class WorkersError(DPSearchError, RuntimeError):
    """Work that was sent to other processes or machines is lost."""
