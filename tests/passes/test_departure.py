"""Batches that depart from a stream's clusters are reported, with false alarms at a stated rate."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.stats import betabinom

import dpsearch
from dpsearch import DPMixture, families
from dpsearch.errors import DepartureWarning, UnseenValuesWarning
from dpsearch.mixture import Mixture
from dpsearch.passes import departure
from dpsearch.passes.departure import Expected
from shard_tables import GAUSSIAN, planted


@pytest.mark.parametrize(
    "case", [(0, 5, 1, 60), (3, 40, 2, 100), (40, 40, 7, 400), (9, 500, 8, 900)]
)
def test_the_number_of_rows_below_a_rank_is_beta_binomial(case):
    c, n, rank, of = case
    want = betabinom.pmf(np.arange(c, n + 1), n, rank, of - rank + 1).sum()
    assert np.exp(departure._log_tail(*case)) == pytest.approx(want, rel=1e-9)


def test_that_distribution_holds_for_any_rows():
    rng = np.random.default_rng(0)
    floors = np.sort(rng.standard_cauchy((4000, 100)), axis=1)[:, 2]
    below = (rng.standard_cauchy((4000, 30)) < floors[:, None]).sum(axis=1)
    share = (below >= 4).mean()
    want = np.exp(departure._log_tail(4, 30, 3, 100))
    assert share == pytest.approx(want, abs=4 * (want / 4000) ** 0.5)


def test_floors_are_those_of_rows_without_themselves():
    X, _ = planted(800, k=3)
    model = DPMixture(GAUSSIAN, 1.0, random_state=0).fit(X)
    labels = model.component_labels_
    known = Expected.of(model.mixture_, X, labels)
    k = int(np.argmax(np.bincount(labels)))
    own = np.flatnonzero(labels == k)
    g = known.groups[k]
    rank = int(0.02 * (len(own) + 1))
    assert (known.counts[g], known.ranks[g]) == (len(own), rank)
    problem = model.problem(X)
    densities = []
    for i in own:
        others = np.delete(np.arange(800), i)
        without = Mixture.of(
            problem.model, problem.items.take(others), labels[others], problem.prior
        )
        densities.append(without.memberships(X[i : i + 1]).log_density[0])
    assert known.floors[g] == pytest.approx(np.sort(densities)[rank - 1], rel=1e-9)
    below, groups = known.below(model.mixture_, dpsearch.tables.CheckedTable(X[own] + [50, 0, 0]))
    assert below[groups >= 0].all()


def stream_of(model, batches):
    """Return the warnings that the batches of a stream cause."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        for batch in batches:
            model.partial_fit(batch)
    return [one.message for one in said]


def test_rows_of_known_clusters_in_any_shares_are_no_departure():
    rng = np.random.default_rng(0)
    centres, spread = rng.normal(0, 20, (3, 2)), np.array([0.1, 1.0, 10.0])
    labels = np.concatenate([rng.integers(3, size=2000), np.repeat([2, 0, 1, 2], 500)])
    X = centres[labels] + spread[labels, None] * rng.normal(size=(4000, 2))
    model = DPMixture(families.FullGaussian(0.0, 0.01, 4.0, 1.0), 1.0, random_state=0)
    assert stream_of(model, np.split(X, 16)) == []
    assert model.departure_ is None


def test_a_departure_is_reported_once_and_kept(tmp_path):
    X, _ = planted(1500)
    X[1000:, 1] += 500.0
    frame = pd.DataFrame(X, columns=["hour", "heat", "flow"])
    model = DPMixture(GAUSSIAN, 1.0, random_state=0)
    (said,) = stream_of(model, [frame[at : at + 250] for at in range(0, 1500, 250)])
    assert isinstance(said, DepartureWarning)
    text = str(said)
    assert "250 of 250 rows, from row 1,001 of the stream on" in text
    assert "most changed: heat (" in text
    assert "it was given" in text
    assert "start a new model" in text
    assert model.departure_ == text
    model.save(tmp_path / "model.npz")
    assert dpsearch.load(tmp_path / "model.npz").departure_ == text
    assert DPMixture(GAUSSIAN, 1.0).fit(X).departure_ is None


def test_a_departure_of_a_family_that_cannot_follow_names_it(monkeypatch):
    monkeypatch.setattr(dpsearch.passes.stream, "KEPT_ROWS", 300)
    rng = np.random.default_rng(0)
    X = rng.standard_t(4, size=(900, 2))
    X[600:] += 80.0
    model = DPMixture("student_t", random_state=0)
    said = stream_of(model, np.split(X, 9))
    assert "student_t family stays as it is, because its statistics depend" in str(said[0])


def test_which_columns_changed():
    rng = np.random.default_rng(0)
    kept, batch = rng.normal(size=(2, 500, 4))
    batch[:, 2] *= 10.0
    batch[:300, 1] = np.nan
    names = ["a", "b", "c", "d"]
    text = departure.changed_columns(kept, batch, names, set())
    assert text.startswith("most changed: b (")
    assert " c (" in text
    assert "a (" not in text
    assert "b," in departure.changed_columns(kept, batch, names, {1})
    assert (
        departure.changed_columns(kept, kept, names, set()) == "no column differs much on its own"
    )
    words = sp.csr_matrix((kept > 1.0).astype(float))
    other = sp.csr_matrix((np.abs(kept) > [9, 9, 0, 9]).astype(float))
    assert departure.changed_columns(words, other, names, set()).startswith("most changed: c")


def test_a_batch_with_levels_never_seen_is_counted_as_predict_does():
    X, labels = planted(400, k=3)
    frame = pd.DataFrame(X).rename(columns=str).assign(kind=np.array(list("xyz"))[labels])
    model = DPMixture(random_state=0).partial_fit(frame[:200])
    frame.loc[250:252, "kind"] = "new"
    with pytest.warns(UnseenValuesWarning, match="column 'kind' has 3 values"):
        model.partial_fit(frame[200:])
