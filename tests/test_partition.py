import numpy as np
import pytest

from dpsearch.errors import DataError
from dpsearch.partition import all_partitions, by_appearance, by_size, check_labels

BELL = [1, 1, 2, 5, 15, 52, 203, 877, 4140]


@pytest.mark.parametrize("n", range(1, 9))
def test_enumeration_has_every_partition_once(n):
    found = {tuple(labels) for labels in all_partitions(n)}
    assert len(found) == BELL[n]
    for labels in found:
        assert tuple(by_appearance(labels)) == labels


def test_by_size_orders_by_size_then_appearance():
    labels = by_size(np.array([4, 4, 1, 2, 2, 9]))
    assert labels.tolist() == [0, 0, 2, 1, 1, 3]


@pytest.mark.parametrize("bad", [[0, 1], [[0, 1, 2]], [0.0, np.nan, 1.0]])
def test_labels_that_do_not_fit(bad):
    with pytest.raises(DataError, match="labels"):
        check_labels(bad, 3)
