"""Time limits: phases end in time, and the result says which were cut short."""

import math

import numpy as np
import pytest

from dpsearch import DPMixture, families, load, log_joint
from dpsearch.deadline import Deadline, OutOfTime, current, limited, within
from dpsearch.errors import ParameterError


class Clock:
    """A clock that advances by one step at every reading."""

    def __init__(self, step=0.0):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def table(n=300):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + 6.0 * (np.arange(n) % 3)[:, None]


def test_a_phase_has_a_share_of_what_is_left():
    clock = Clock()
    deadline = Deadline(10.0, clock=clock)
    clock.now = 2.0
    with deadline.during("first", 0.5):
        assert deadline.left == 4.0
        with deadline.during("inner", 0.25):
            assert deadline.left == 1.0
        clock.now = 6.0
        assert deadline.over
        with deadline.needed():
            assert not deadline.over
            deadline.check()
    assert deadline.left == 4.0
    assert not deadline.over
    assert deadline.cut_short == ["first"]
    with deadline.during("second"):
        deadline.stop()
        assert deadline.left == 0.0
        with pytest.raises(OutOfTime):
            deadline.check()
    assert (deadline.stopped_in, deadline.cut_short) == ("second", ["first", "second"])


def test_the_sooner_deadline_counts():
    assert current().left == math.inf
    with within(Deadline(10.0, clock=Clock())) as outer:
        with limited(60.0, None) as own:
            assert own is outer is current()
        with limited(None, None) as own:
            assert own is outer
        with limited(1.0, None) as own:
            assert own is not outer
            assert own.left <= 1.0
    assert current().left == math.inf


def test_a_callback_inside_does_not_lose_the_limit_outside():
    with limited(0.5, None), limited(None, lambda event: None) as inner:
        assert inner.left <= 0.5
    with limited(0.5, None), limited(10.0, lambda event: None) as inner:
        assert inner.left <= 0.5
    with limited(10.0, None), limited(0.5, lambda event: None) as inner:
        assert inner.left <= 0.5


def test_with_time_enough_nothing_changes():
    X = table()
    free, limited_ = DPMixture().fit(X), DPMixture(time_limit=1e6).fit(X)
    assert limited_.cut_short_ == ()
    assert np.array_equal(free.labels_, limited_.labels_)
    assert free.log_joint_ == limited_.log_joint_
    assert free.level_reason_ == limited_.level_reason_


@pytest.mark.parametrize("step", [0.001, 0.02, 0.3, 2.0, 50.0])
def test_a_fit_ends_wherever_the_time_is_up(step, tmp_path):
    """With a clock that advances when read, the number of readings, and so the work, is bounded."""
    X, clock, phases = table(), Clock(step), []
    X[::7, 0] = np.nan
    with within(Deadline(10.0, lambda event: phases.append(event.phase), clock=clock)) as deadline:
        model = DPMixture().fit(X)
    assert model.cut_short_ == tuple(deadline.cut_short)
    assert (model.cut_short_ == ()) == (clock.now < 10.0)
    assert set(model.cut_short_) <= set(phases)
    assert np.array_equal(np.bincount(model.component_labels_), model.mixture_.sizes)
    rows = X if model.completed_ is None else model.completed_
    naive = log_joint(rows, model.component_labels_, model.family_, model.mixture_.prior)
    assert model.log_joint_ == pytest.approx(naive)
    model.save(tmp_path / "m.npz")
    assert load(tmp_path / "m.npz").cut_short_ == model.cut_short_
    if step == 50.0:
        assert clock.now < 10.0 + 50.0 * 60  # nothing but what every result needs


@pytest.mark.parametrize(
    "options",
    [
        {"n_shards": 3},
        {"family": families.Gaussian(0.0, 30.0, 1.0), "beam_size": 3},
        {"family": families.Gaussian(0.0, 30.0, 1.0), "refine": True},
        {"family": "full_gaussian"},
    ],
)
def test_every_way_to_fit_ends_when_the_time_is_up(options):
    X = table(3000)
    for step in (1.0, 100.0):
        with within(Deadline(10.0, clock=Clock(step))):
            model = DPMixture(random_state=0, **options).fit(X)
        assert "refining" in model.cut_short_
        assert np.array_equal(np.bincount(model.component_labels_), model.mixture_.sizes)


def test_a_stop_in_refinement_keeps_the_best():
    X, best = table(), []
    with within(Deadline()) as deadline:

        def stop(event):
            if event.phase == "refining" and event.step == "start":
                best.append(event.log_joint)
                deadline.stop()

        deadline.callback = stop
        model = DPMixture(families.Gaussian(0.0, 30.0, 1.0), refine=True).fit(X)
    assert deadline.stopped_in == "refining"
    assert model.log_joint_ >= best[0]
    assert not model.clustering_.converged
    assert model.cut_short_[0] == "refining"


@pytest.mark.parametrize("limit", [0, -1.0, "soon", True, math.nan])
def test_a_limit_is_a_number_above_zero(limit):
    with pytest.raises(ParameterError, match="time_limit"):
        DPMixture(time_limit=limit).fit(table())
