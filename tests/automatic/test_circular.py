"""Hours and months as integers: categories that compete with von Mises' family."""

import numpy as np
import pandas as pd
import pytest
from scipy.stats import circmean
from sklearn.metrics import adjusted_rand_score

from dpsearch import DPMixture, families, load
from dpsearch.automatic.alternatives import Eligible, _Competition, _period
from dpsearch.automatic.choice import resolve_prior
from dpsearch.items import log_marginals
from dpsearch.report.profiles import Subsets, profiles
from dpsearch.report.table import Column as ReportColumn
from dpsearch.report.table import Table
from dpsearch.tables import CheckedTable, Column

N = 300


def about(rng, centres, spread, period):
    """Return circular integers from 0."""
    return np.floor(np.remainder(rng.normal(centres, spread), period)).astype(int)


@pytest.fixture(scope="module")
def night_and_day():
    """Return a frame of two groups, about midnight and about noon, and a model of it."""
    rng = np.random.default_rng(1)
    truth = rng.integers(2, size=N)
    frame = pd.DataFrame(
        {
            "hour": about(rng, np.where(truth, 0.0, 12.0), 2.5, 24),
            "kind": np.where(rng.random(N) < 0.3 + 0.4 * truth, "a", "b"),
            "x": rng.normal(size=N) + 1.5 * truth,
        }
    )
    return frame, truth, DPMixture(random_state=0).fit(frame)


def test_groups_by_whole_hours_are_found(night_and_day):
    _, truth, model = night_and_day
    assert model.n_clusters_ == 2
    assert adjusted_rand_score(truth, model.labels_) > 0.9
    assert "1 of von_mises (hour)" in model.reason_
    assert [own.name for own in model.family_.by_column(3)][:2] == ["von_mises", "categorical"]


def test_what_is_expected_of_hours_is_an_hour(night_and_day, tmp_path):
    frame, truth, model = night_and_day
    gaps = frame.astype({"hour": float})
    gaps.loc[:49, "hour"] = np.nan
    filled = model.impute(gaps)["hour"]
    sure = model.predict_proba(gaps)[:50].max(axis=1) > 0.95
    centres = np.where(truth[:50], 0.0, 12.0)[sure]
    away = np.abs(np.remainder(filled[:50][sure] - centres + 12.0, 24.0) - 12.0)
    assert away.max() <= 2.0
    drawn = model.sample(400)[0]["hour"]
    for hours in (filled, drawn):
        assert set(hours) <= set(range(24))
    assert {23, 0} <= set(drawn)
    explanation = model.explain(frame)
    night = int(model.labels_[truth == 1][0])
    [(centre, is_code)] = [
        (explanation.value("hour", one.centre), one.is_code)
        for one in explanation.indicative(night, 3)
        if one.column == "hour"
    ]
    assert centre in ("23", "0")
    assert is_code
    rows = model.schema_.decode(model.checked(frame).matrix)
    shown = Table.of(rows, model.family_, about=model.schema_.columns).columns
    assert [one.is_category for one in shown] == [True, True, False]
    model.save(tmp_path / "model")
    np.testing.assert_array_equal(load(tmp_path / "model").predict(gaps), model.predict(gaps))


def test_groups_that_categories_do_not_distinguish_are_found():
    rng = np.random.default_rng(5001)
    truth = rng.integers(3, size=N)
    hours = about(rng, np.array([0.5, 9.0, 17.0])[truth], 2.0, 24)
    frame = pd.DataFrame({"hour": hours, "x": rng.normal(size=N) + truth})
    assert DPMixture(kinds={"hour": "category"}, random_state=0).fit(frame).n_clusters_ == 1
    model = DPMixture(random_state=0).fit(frame)
    assert model.n_clusters_ == 3
    assert adjusted_rand_score(truth, model.labels_) > 0.8


def test_two_peaks_of_one_cloud_are_one_cluster():
    rng = np.random.default_rng(2)
    hours = about(rng, np.where(rng.random(N) < 0.5, 8.5, 18.0), 1.5, 24)
    frame = pd.DataFrame({"hour": hours, "x": rng.normal(size=N), "y": rng.normal(size=N)})
    model = DPMixture(random_state=0).fit(frame)
    assert model.n_clusters_ == 1
    assert "von_mises" not in model.reason_


def test_integer_degrees_under_a_short_name_are_circular():
    rng = np.random.default_rng(3)
    frame = pd.DataFrame({"wind_dir": about(rng, np.full(N, 350.0), 40.0, 360)})
    frame["x"] = rng.normal(size=N)
    model = DPMixture(random_state=0).fit(frame)
    assert model.n_clusters_ == 1
    assert "1 of von_mises (wind_dir)" in model.reason_


def test_clusters_are_distinguished_by_the_evidence_of_other_columns():
    """Against log H of the other columns, pair by pair."""
    rng = np.random.default_rng(4)
    partition, found = np.arange(60) % 3, set()
    for shift in (0.0, 0.2, 0.4, 0.6, 3.0):
        x = rng.normal(size=60) + shift * partition
        table = CheckedTable(np.column_stack([about(rng, 4.0 * partition, 1.0, 12) * 1.0, x]))
        codes = families.Categorical(n_levels=12)
        gaussian = families.DiagonalGaussian.suggest(table.matrix[:, [1]])
        circular = families.VonMises(period=12.0).resolve(table.matrix[:, [0]])
        competition = _Competition(
            table,
            families.Product([(codes, [0]), (gaussian, [1])]),
            resolve_prior("auto"),
            {0: Eligible(None, 12.0)},
        )
        family = families.Product([(circular, [0]), (gaussian, [1])])
        found_different = competition.distinguishes(family, partition)
        model = gaussian.compile(table.matrix[:, [1]])

        def log_h(labels, model=model):
            items, n = model.items()[0], int(labels.max()) + 1
            return log_marginals(model.summaries, model.rows(items, labels, n)[0], n).sum()

        unions = [np.unique(np.where(partition == a, b, partition), return_inverse=True)[1]
                  for a, b in ((0, 1), (0, 2), (1, 2))]  # fmt: skip
        expected = all(log_h(partition) >= log_h(union) for union in unions)
        assert found_different == expected
        found.add(found_different)
    assert found == {True, False}


def test_codes_between_levels_are_the_nearest_ones():
    months = Column("month", "category", "int", tuple(range(1, 13)), role="angle")
    assert months.period == 12.0
    assert months.decode(np.array([0.0, 4.4, 11.3, 11.7, -0.2, np.nan])) == [1, 5, 12, 1, 1, None]
    assert Column("kind", "category", "text", ("a", "b")).period is None


@pytest.mark.parametrize(
    ("name", "last", "period"),
    [
        ("minute", 59, 60.0), ("startMinute", 59, 60.0), ("beats per minute", 59, None),
        ("minutes", 59, None), ("day_of_week", 6, 7.0), ("dow", 6, 7.0), ("wind_dir", 359, 360.0),
        ("direct_sales", 359, None), ("direction", 359, 360.0), ("direction", 6, None),
        ("hour", 10, None), ("hr", 23, 24.0),
    ],
)  # fmt: skip
def test_integers_that_are_circular_by_name(name, last, period):
    found, is_named = _period(name, np.arange(last + 1.0))
    assert (found if is_named else None) == period


@pytest.mark.parametrize(
    ("values", "period"),
    [
        (np.linspace(-3.14, 3.13, 200), 2.0 * np.pi),
        (np.linspace(0.01, 6.28, 200), 2.0 * np.pi),
        (np.linspace(0.0, 359.9, 200), 360.0),
        (np.linspace(-179.0, 180.0, 200), 360.0),
        (np.linspace(-3.14, 2.9, 200), None),  # not from end to end
        (np.linspace(-3.0, 3.2, 200), None),
        (np.arange(0.0, 7.0), None),
        (np.linspace(0.0, 366.0, 200), None),
    ],
)
def test_the_range_of_angles(values, period):
    assert _period("v1", values) == (period, False)


def test_clouds_of_angles_without_a_name_are_one_cluster():
    X = np.random.default_rng(0).vonmises([1.0, -3.0], 2.0, size=(600, 2))
    model = DPMixture().fit(X)
    assert model.family_.name == "von_mises"
    assert model.n_clusters_ == 1


def test_numbers_with_the_range_of_angles_stay_numbers():
    x = np.sort(np.random.default_rng(0).normal(size=(500, 2)), axis=0)
    x = np.random.default_rng(1).permuted((2.0 * x - x[0] - x[-1]) / (x[-1] - x[0]), axis=0) * 3.14
    model = DPMixture().fit(x)
    assert "von_mises" not in model.reason_
    assert model.n_clusters_ == 1


def test_circular_clusters_are_not_cut_where_the_period_begins():
    """The Gaussians cut the group about north, and a rounded Gaussian fits its two halves."""
    rng = np.random.default_rng(5)
    groups = rng.choice(3, 600)
    angles = rng.vonmises(np.array([0.0, 2.0, 4.0])[groups], 4.0)
    table = pd.DataFrame(
        {
            "wind_direction": np.round(np.degrees(angles) % 360.0) % 360.0,
            "temperature": rng.normal(np.array([20.0, 35.0, 60.0])[groups], 1.0),
            "vibration": rng.lognormal(np.array([-1.0, 0.0, 2.0])[groups], 0.4),
        }
    )
    model = DPMixture().fit(table)
    assert "von_mises" in model.reason_
    assert adjusted_rand_score(groups, model.labels_) > 0.98


def test_a_name_that_suggests_circular_values_counts():
    """Gaussians that cut a group at north are a few nats better; the name decides."""
    rng = np.random.default_rng(22)
    groups = rng.choice(3, 600)
    table = pd.DataFrame(
        {
            "direction": np.degrees(rng.vonmises(np.array([0.0, 2.0, 4.0])[groups], 4.0)) % 360.0,
            "temperature": rng.normal(np.array([20.0, 35.0, 60.0])[groups], 1.0),
        }
    )
    model = DPMixture().fit(table)
    assert adjusted_rand_score(groups, model.labels_) > 0.98
    unnamed = DPMixture().fit(table.rename(columns={"direction": "pressure"}))
    assert unnamed.n_clusters_ > 3
    columns = Table.of(table, model.family_).columns
    assert [column.period for column in columns] == [360.0, None]


def test_the_report_has_mean_directions():
    rng = np.random.default_rng(0)
    values = np.remainder(rng.normal(np.repeat([355.0, 100.0], 200), 8.0), 360.0)
    values[5] = np.nan
    labels = np.repeat([0, 1], 200)
    table = Table(("",) * 400, (ReportColumn("direction", values, period=360.0),))
    first, second = profiles(table, labels, Subsets.alone(np.ones((2, 1))))
    assert first.parts[0].mean == pytest.approx(355.0, abs=2.0)
    assert first.parts[0].spread == pytest.approx(8.0, abs=1.0)
    assert second.parts[0].mean == pytest.approx(100.0, abs=2.0)
    radians = np.radians(values[labels == 0])
    wanted = np.degrees(circmean(radians[~np.isnan(radians)], 2.0 * np.pi, 0.0))
    assert first.parts[0].mean == pytest.approx(wanted)
    assert first.in_words().startswith("direction about 355 (all ")
