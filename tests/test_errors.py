"""Errors have fields for what they are about, and their text follows from the fields."""

import copy
import pickle

import pytest

from dpsearch.errors import (
    DataError,
    DPSearchError,
    ParameterError,
    located,
)


def test_the_text_follows_the_fields():
    error = DataError("X at {place} is missing", row=3, column=1)
    assert str(error) == "X at row 3, column 1 is missing"
    error.column, error.source = "age", "people.csv"
    assert str(error) == "people.csv: row 3, column 'age' is missing"
    error.line = 5
    assert str(error) == "people.csv: line 5, column 'age' is missing"


def test_a_place_that_the_text_does_not_mention_comes_first():
    error = DataError("'x' is not a number", line=7, column="b", source="a.csv")
    assert str(error) == "a.csv, line 7, column 'b': 'x' is not a number"
    assert str(DataError("'x' is not a number", row=2)) == "row 2: 'x' is not a number"


def test_values_of_the_data_are_no_markers():
    error = DataError("X at {place} is '{place} {parameter} {0}'", row=1, column="{place}")
    assert str(error) == "X at row 1, column '{place}' is '{place} {parameter} {0}'"
    assert str(DataError("{place} is a word")) == "{place} is a word"


def test_the_parameter_is_a_field():
    error = ParameterError("{parameter} must be above 0, got -1", parameter="alpha")
    assert error.parameter == "alpha"
    assert str(error) == "alpha must be above 0, got -1"


def test_blocks_of_rows_and_columns_are_placed_from_inside_out():
    with (
        pytest.raises(DataError, match=r"^file: row 1012, column 'c' is odd$") as caught,
        located("file", columns=["a", "b", "c"]),
        located(rows=1000),
        located(rows=[7, 12], columns=[0, 2]),
    ):
        raise DataError("X at {place} is odd", row=1, column=1)
    assert (caught.value.row, caught.value.column) == (1012, "c")


def test_what_has_a_source_is_in_place():
    with pytest.raises(DataError, match="^inner: row 1$"), located("outer", rows=10):
        raise DataError("{place}", row=1, source="inner")


@pytest.mark.parametrize("again", [copy.copy, lambda e: pickle.loads(pickle.dumps(e))])
@pytest.mark.parametrize("kind", [DPSearchError, DataError])
def test_copies_and_pickles_keep_fields(again, kind):
    error = kind("{parameter} at {place}", parameter="X", row=3, column="a", source="b")
    assert str(again(error)) == str(error)
    assert vars(again(error)) == vars(error)


def test_what_is_shown_of_an_error_is_its_message():
    assert repr(ParameterError.of("tol", "is negative")) == "ParameterError('tol is negative')"
