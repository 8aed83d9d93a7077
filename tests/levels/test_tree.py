"""Overlaps, the tree over components, and its cuts."""

import numpy as np
import pytest
from scipy.cluster.hierarchy import dendrogram, fcluster, is_valid_linkage
from scipy.special import logsumexp

from dpsearch.errors import ParameterError
from dpsearch.levels.overlap import overlap
from dpsearch.levels.tree import grow


def memberships(n, k, sharpness, seed):
    rng = np.random.default_rng(seed)
    log_r = sharpness * rng.normal(size=(n, k))
    return log_r - logsumexp(log_r, axis=1, keepdims=True)


def naive_tree(pairs, single):
    """Merge the pair of largest lift repeatedly, computing all lifts anew each time."""
    sets = [frozenset([k]) for k in range(len(single))]
    order = []
    while len(sets) > 1:

        def lift(a, b):
            shared = sum(pairs[i, j] for i in a for j in b)
            return shared / (sum(single[i] for i in a) * sum(single[j] for j in b))

        best = max(
            ((lift(a, b), a, b) for i, a in enumerate(sets) for b in sets[:i]), key=lambda x: x[0]
        )
        sets = [s for s in sets if s not in best[1:]] + [best[1] | best[2]]
        order.append((-np.log(best[0]), best[1] | best[2]))
    return order


@pytest.mark.parametrize("temper", [1.0, 0.25])
@pytest.mark.parametrize("seed", range(5))
def test_overlap_and_tree_against_their_definitions(seed, temper):
    log_r = memberships(200, 7, 3.0, seed)
    r = np.exp(temper * log_r)
    r /= r.sum(axis=1, keepdims=True)
    found = overlap(log_r, temper)
    np.testing.assert_allclose(np.exp(found.log_pairs), r.T @ r / len(r), rtol=1e-10)
    np.testing.assert_allclose(np.exp(found.log_single), r.mean(axis=0), rtol=1e-10)

    tree = grow(found, np.arange(20, 27))
    expected = naive_tree(r.T @ r / len(r), r.mean(axis=0))
    np.testing.assert_allclose(tree.heights, [height for height, _ in expected], rtol=1e-8)
    nodes = [frozenset([k]) for k in range(7)]
    for (a, b), (_, joined) in zip(tree.merges, expected, strict=True):
        nodes.append(nodes[a] | nodes[b])
        assert nodes[-1] == joined
    assert tree.sizes.tolist() == [sum(20 + k for k in node) for node in nodes]


def test_heights_never_fall_and_scipy_takes_the_linkage():
    tree = grow(overlap(memberships(500, 30, 8.0, 1), 0.25), np.full(30, 4))
    assert (np.diff(tree.heights) >= 0.0).all()
    assert is_valid_linkage(tree.linkage)
    dendrogram(tree.linkage, no_plot=True)
    for height in np.quantile(tree.heights, [0.1, 0.5, 0.9]) + 1e-9:
        ours = tree.cut(height=height)
        theirs = fcluster(tree.linkage, height + tree.shift, "distance")
        assert len({*zip(ours, theirs, strict=True)}) == len({*ours}) == len({*theirs})


def test_components_without_overlap_are_ordered_by_distance():
    """Overlaps of four distant groups, e^-3000 and less, underflow but must still compare."""
    at = np.array([0.0, 10.0, 100.0, 130.0])
    x = np.repeat(at, 5)
    log_r = -0.5 * (x[:, None] - at) ** 2 * 10.0
    log_r -= logsumexp(log_r, axis=1, keepdims=True)
    tree = grow(overlap(log_r), np.full(4, 5))
    assert tree.merges[:2].tolist() == [[0, 1], [2, 3]]
    assert np.isfinite(tree.heights).all()


def test_cuts_by_number_height_and_size():
    sizes = np.array([50, 40, 30, 20, 3, 2])
    tree = grow(overlap(memberships(400, 6, 2.0, 3)), sizes)
    assert tree.cut(6).tolist() == list(range(6))
    assert tree.cut(1).tolist() == [0] * 6
    for count in range(1, 7):
        groups = tree.cut(count)
        assert groups.max() + 1 == count
        totals = np.bincount(groups, sizes)
        assert (np.diff(totals) <= 0).all()  # numbered from the largest
    groups = tree.cut(height=-np.inf, min_size=10)
    assert (np.bincount(groups, sizes) >= 10).all()
    # The two small ones went where their lift, a mean over components, is largest.
    assert groups.max() + 1 == 4
    smallest = tree.log_lift[5].copy()
    smallest[5] = -np.inf
    assert groups[5] == groups[smallest.argmax()]
    assert tree.cut(3, min_size=10).max() + 1 == 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"n_clusters": 0}, "n_clusters must be an integer ≥ 1"),
        ({"n_clusters": 2.0}, "n_clusters must be an integer ≥ 1"),
        ({"n_clusters": True}, "n_clusters must be an integer ≥ 1"),
        ({"n_clusters": 7}, "there are only 6 components"),
        ({"n_clusters": 2, "height": 0.0}, "n_clusters or height, not both"),
        ({"height": "x"}, "height must be a number"),
        ({"min_size": 0}, "min_size must be an integer ≥ 1"),
        ({"n_clusters": 6, "min_size": 40}, "no cut of the tree has 6 clusters of at least 40"),
    ],
)
def test_cuts_that_cannot_be_made(arguments, words):
    tree = grow(overlap(memberships(100, 6, 2.0, 3)), np.arange(10, 70, 10))
    with pytest.raises(ParameterError, match=words):
        tree.cut(**arguments)
