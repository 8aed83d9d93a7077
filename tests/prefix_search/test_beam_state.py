"""Arrays of search states are made by the types of their fields."""

import numpy as np
from numpy.typing import NDArray

from dpsearch._records import _dtype
from dpsearch.prefix_search.beam_state import Counts, new_rows


def test_the_type_of_numbers_is_read_from_arrays_of_any_numpy():
    assert _dtype(NDArray[np.uint32]) is np.uint32
    # As NumPy 2.5 has it, an alias with one parameter; and as it was, with a shape before.
    assert _dtype(list[np.int64]) is np.int64
    assert _dtype(np.ndarray[tuple[int], np.dtype[np.float64]]) is np.float64
    assert _dtype(int) is None
    assert _dtype(Counts) is None


def test_rows_have_the_types_of_their_fields():
    rows = new_rows(3, 8)
    assert (rows.pool.dtype, rows.pool.size) == (np.float64, 24)
    assert (rows.free.dtype, rows.sizes.dtype) == (np.uint32, np.int64)
