"""Plots: the drawn elements agree with the data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pytest

from dpsearch import DPMixture, consensus, families, gibbs, plots, priors
from dpsearch._numbers import brief
from dpsearch.errors import DataError, ParameterError
from dpsearch.events import Event
from dpsearch.problem import Clustering

FAMILY = families.Gaussian(0.0, 25.0, 1.0)
PRIOR = priors.DirichletProcess(1.0)


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], [40, 30, 20])
    centres = np.array([[0.0, 0.0, 1.0], [8.0, 0.0, 1.0], [0.0, 9.0, 1.0]])
    X = centres[labels] + rng.normal(size=(90, 3)) * [1.0, 0.5, 0.0]
    return X, labels


def test_scatter_draws_each_cluster_and_its_ellipse(table):
    X, labels = table
    axis = plots.scatter(X, labels, columns=[0, 1], names=["a", "b", "c"])
    assert [axis.get_xlabel(), axis.get_ylabel()] == ["a", "b"]
    assert [len(part.get_offsets()) for part in axis.collections] == [40, 30, 20]
    for k, ellipse in enumerate(axis.patches):
        own = X[labels == k, :2]
        assert ellipse.center == pytest.approx(own.mean(axis=0))
        # Its outline has Mahalanobis distance 2 from the mean, all the way round.
        outline = ellipse.get_patch_transform().transform(ellipse.get_path().vertices[::3])
        away = outline - own.mean(axis=0)
        squared = np.einsum("ij,jk,ik->i", away, np.linalg.inv(np.cov(own.T)), away)
        np.testing.assert_allclose(squared, 4.0, rtol=1e-6)
    assert [text.get_text() for text in axis.texts] == ["0", "1", "2"]


def test_scatter_of_more_columns_shows_principal_components(table):
    X, labels = table
    axis = plots.scatter(X, labels)
    drawn = np.vstack([part.get_offsets() for part in axis.collections])
    # Two columns vary, so that two standardised components hold everything.
    assert drawn.var(axis=0).sum() == pytest.approx(2.0)
    assert "principal component 1" in axis.get_xlabel()


def test_mean_images_of_any_shape():
    images = np.repeat([[0.0] * 6, [1.0, 0, 0, 0, 0, 1.0]], [2, 3], axis=0)
    axis = plots.mean_images(images, ["b", "b", "a", "a", "a"], image_shape=(2, 3))
    assert [text.get_text() for text in axis.texts] == ["3", "2"]
    mosaic = axis.images[0].get_array()
    assert (mosaic > 0).sum() == 2
    down, right = np.argwhere(mosaic)[1] - np.argwhere(mosaic)[0]
    assert (down, right) == (1, 2)  # the corners of a picture of 2 × 3
    square = plots.mean_images(np.eye(4), np.arange(4), shown=3)
    assert len(square.texts) == 3


@pytest.mark.parametrize(
    ("images", "labels", "options", "message"),
    [
        (np.zeros((4, 6)), np.zeros(4, int), {}, "image_shape 2×2 has 4 pixels, but images has 6"),
        (np.zeros((4, 6)), np.zeros(4, int), {"image_shape": (2, 4)}, "has 8 pixels"),
        (np.zeros((4, 6)), np.zeros(4, int), {"image_shape": 3}, "must be .height, width."),
        (np.zeros((4, 4)), [0, 0, 1], {}, "labels have shape .3,., but there are 4 rows"),
        (np.zeros((4, 4)), None, {}, "labels"),
        (np.zeros((4, 2, 2)), [0, 0, 1, 1], {}, "images must be a table with a row for each"),
    ],
)
def test_mean_images_that_cannot_be(images, labels, options, message):
    with pytest.raises((DataError, ParameterError), match=message):
        plots.mean_images(images, labels, **options)


def test_labels_keep_their_names(table):
    X, labels = table
    names = np.array(["pear", "apple", "fig"])[labels]
    axis = plots.profiles(X, names)
    assert [t.get_text() for t in axis.get_yticklabels()] == ["apple (30)", "fig (20)", "pear (40)"]
    axis = plots.scatter(X, 5 - labels, columns=[0, 1])
    assert [text.get_text() for text in axis.texts] == ["3", "4", "5"]


def test_profiles_are_standardised_differences(table):
    X, labels = table
    axis = plots.profiles(X, labels, names=["a", "b", "c"])
    drawn = np.asarray(axis.images[0].get_array())
    naive = [(X[labels == 1, j].mean() - X[:, j].mean()) / X[:, j].std() for j in (0, 1)]
    assert drawn[1, :2] == pytest.approx(naive)
    assert (drawn[:, 2] == 0.0).all()  # a constant column
    few = plots.profiles(X, labels, names=["a", "b", "c"], shown=2)
    assert [tick.get_text() for tick in few.get_xticklabels()] == ["a", "b"]


def test_trace_marks_moves_and_the_bound():
    points = [Event(0.1, -9.0, 2, "search"), Event(90.0, -7.0, 3, "sweep")]
    axis = plots.trace(Clustering(np.zeros(3, np.int64), -7.0, upper_bound=-6.0, trace=points))
    np.testing.assert_allclose(axis.lines[0].get_xydata(), [[0.1, -9.0], [90.0, -7.0]])
    assert [text.get_text() for text in axis.get_legend().get_texts()] == ["search", "sweep"]
    assert axis.get_xscale() == "log"
    assert axis.lines[1].get_ydata()[0] == -6.0


def test_coclustering_and_k_posterior(table):
    X, labels = table
    mixed = np.random.default_rng(1).permutation(len(X))
    draws = gibbs(X[mixed], FAMILY, PRIOR, draws=40, rng=0)
    axis = plots.coclustering(draws, labels=labels[mixed])
    order = np.argsort(labels[mixed], kind="stable")
    np.testing.assert_allclose(axis.images[0].get_array(), draws.coclustering(order, order))
    view = consensus(X[mixed], FAMILY, PRIOR, n_restarts=3, rng=0)
    shown = plots.coclustering(view, shown=30)
    assert shown.images[0].get_array().shape == (30, 30)
    bars = plots.k_posterior(draws)
    heights = {round(bar.get_center()[0]): bar.get_height() for bar in bars.patches}
    for k, share in enumerate(draws.k_posterior()):
        assert heights.get(k, 0.0) == share


def test_plots_take_axes_and_can_be_saved(table, tmp_path):
    X, labels = table
    top, bottom = plots.new_axes(2, 1, (5, 6))[:, 0]
    assert plots.scatter(X, labels, top) is top
    assert plots.profiles(X, labels, bottom) is bottom
    plots.save_figure(top.figure, tmp_path / "both.png")
    assert (tmp_path / "both.png").stat().st_size > 1000


def test_errors_name_what_is_wrong(table):
    X, labels = table
    with pytest.raises(ParameterError, match="columns must be two"):
        plots.scatter(X, labels, columns=[0, 3])
    with pytest.raises(ParameterError, match="needs two"):
        plots.scatter(X[:, :1], labels)
    with pytest.raises(ParameterError, match="names has 1 entries for 3"):
        plots.profiles(X, labels, names=["a"])
    with pytest.raises(DataError, match="90 rows"):
        plots.profiles(X, labels[:5])
    with pytest.raises(ParameterError, match="no trace"):
        plots.trace(Clustering(labels, 0.0))


@pytest.mark.parametrize("library", [pd, pl])
def test_mixed_frames_with_gaps(library):
    codes = np.repeat([0, 1], 20)
    content = {
        "size": [None, *(9.0 * codes + np.arange(40) / 40)[1:]],
        "name": [f"row {i}" for i in range(40)],
        "pet": np.array(["cat", "dog", "fish"])[np.arange(40) % 2 + codes].tolist(),
        "depth": np.arange(40.0).tolist(),
    }
    frame = library.DataFrame(content)
    axis = plots.profiles(frame, codes)
    titles = [tick.get_text() for tick in axis.get_xticklabels()]
    assert titles == ["size", "pet cat", "pet dog", "pet fish", "depth"]
    size = np.array(content["size"], float)
    cells = [text.get_text() for text in axis.texts]
    assert cells[:4] == [brief(np.nanmean(size[:20])), "0.5", "0.5", "0"]
    drawn = plots.scatter(frame, codes, columns=["size", 3])
    assert (drawn.get_xlabel(), drawn.get_ylabel()) == ("size", "depth")
    assert [len(one.get_offsets()) for one in drawn.collections] == [19, 20]
    assert plots.scatter(frame, codes).get_xlabel().startswith("principal component 1")
    with pytest.raises(ParameterError, match="columns must be two columns of numbers"):
        plots.scatter(frame, codes, columns=["size", "pet"])


def test_a_fitted_model_has_a_trace_to_plot(table):
    model = DPMixture(FAMILY, 1.0, random_state=0).fit(table[0])
    axis = plots.trace(model.clustering_)
    assert axis.lines[0].get_ydata()[-1] == pytest.approx(model.log_joint_)


@pytest.fixture(scope="module")
def pairs():
    """Return three pairs of groups, each group a cluster."""
    rng = np.random.default_rng(1)
    centres = np.array([[0, 0], [5, 0], [30, 0], [35, 0], [0, 30], [5, 30]])
    X = centres[np.repeat(np.arange(6), [60, 50, 40, 35, 30, 25])] + rng.normal(size=(240, 2))
    return DPMixture(families.Gaussian(0.0, 100.0, 1.0), PRIOR, level=3, random_state=0).fit(X)


def leaf_texts(axis):
    return [tick.get_text() for tick in axis.get_xticklabels()]


def test_dendrogram_has_a_leaf_for_each_component_and_the_line_of_the_cut(pairs):
    axis = plots.dendrogram(pairs)
    sizes = pairs.mixture_.sizes
    assert sorted(leaf_texts(axis)) == sorted(f"{size}" for size in sizes)
    (line,) = axis.get_lines()
    # The ticks tell how far what is drawn is from the heights of the tree.
    tick = axis.get_yticks()[0]
    shown = float(axis.yaxis.get_major_formatter()(tick).replace("−", "-"))
    heights = pairs.tree_.heights
    assert heights[2] < line.get_ydata()[0] - tick + shown < heights[3]
    names = [text.get_text() for text in axis.texts]
    assert sorted(names) == ["0", "1", "2"]  # once for each cluster, below its leaves
    colours = {tuple(part.get_color()[0]) for part in axis.collections}
    assert len(colours) == 4  # three clusters, and what is above the cut


def test_dendrogram_of_many_components_shows_the_last_merges(pairs):
    axis = plots.dendrogram(pairs, shown=4)
    texts = leaf_texts(axis)
    assert len(texts) == 4
    assert sum(int(text.split("\n")[0]) for text in texts) == 240
    assert sum(int(text.split("(")[1][:-1]) for text in texts if "(" in text) == 4


def test_dendrogram_has_no_line_if_clusters_are_not_a_cut(pairs):
    apart = np.array([0, 1, 2, 3, 3, 0])  # the largest and the smallest are far from each other
    state = pairs.state_._replace(mixture=pairs.mixture_.grouped(apart))
    assert len(plots.dendrogram(DPMixture.from_state(state)).get_lines()) == 0
    (line,) = plots.dendrogram(pairs.at_level("components")).get_lines()
    assert line.get_linestyle() == "--"


def test_dendrogram_that_cannot_be(table, pairs):
    one = DPMixture(FAMILY, PRIOR, random_state=0).fit(np.zeros((5, 2)))
    with pytest.raises(ParameterError, match="there is one component: a tree needs two"):
        plots.dendrogram(one)
    with pytest.raises(ParameterError, match="shown must be an integer ≥ 2"):
        plots.dendrogram(pairs, shown=1)
