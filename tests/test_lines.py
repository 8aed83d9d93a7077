"""Lines of memory: where room begins, and inner products line by line."""

import numpy as np
import pytest

from dpsearch._jit import kernel, view
from dpsearch._lines import LINE, product_of_lines, room_in_lines


@kernel
def _product(left, right, first, n):
    return product_of_lines(view(left, first, n), view(right, first + 1, n))


@kernel
def _room(size):
    return room_in_lines(size)


@pytest.mark.parametrize("make", [room_in_lines, _room])
def test_room_begins_at_a_line(make):
    rooms = [make(size) for size in range(1, 40)]
    assert [len(room) for room in rooms] == list(range(1, 40))
    assert {room.ctypes.data % (8 * LINE) for room in rooms} == {0}


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("n_lines", [0, 1, 2, 3, 7, 24])
def test_products_are_those_of_numpy(n_lines, first):
    left, right = np.random.default_rng(0).normal(size=(2, 250))
    n = n_lines * LINE
    wanted = left[first : first + n] @ right[first + 1 : first + 1 + n]
    assert _product(left, right, first, n) == pytest.approx(wanted, rel=1e-13, abs=1e-13)
