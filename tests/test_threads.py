"""Work that threads share: its order, its errors, and the pool after a fork."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from dpsearch import Problem, families, priors, refine
from dpsearch._threads import (
    concurrently,
    each,
    in_use,
    pool,
    shared,
    single_products,
    together,
    using,
)
from dpsearch._validate import as_rng
from dpsearch.deadline import Deadline, current, within
from dpsearch.passes.history import History
from dpsearch.refinement.turns import Refinement


@pytest.mark.parametrize("n_threads", [1, 3])
def test_results_come_in_order(n_threads):
    def slowest_first(i):
        time.sleep(0.002 * (10 - i))
        return i * i

    assert list(each(slowest_first, range(10), n_threads)) == [i * i for i in range(10)]


@pytest.mark.parametrize("n", [0, 1, 2, 7])
@pytest.mark.parametrize("n_threads", [1, 3])
def test_shares_come_in_order_and_this_thread_does_one(n, n_threads):
    found = together(lambda i: (i, threading.current_thread()), n, n_threads)
    assert [i for i, _ in found] == list(range(n))
    threads = {thread for _, thread in found}
    assert len(threads) <= min(n, n_threads)
    assert n == 0 or threading.current_thread() in threads


def test_shares_inside_of_a_share_do_not_wait_for_each_other():
    found = together(lambda i: together(lambda k: 10 * i + k, 3, 2), 4, 2)
    assert found == [[10 * i + k for k in range(3)] for i in range(4)]


def test_an_error_of_a_share_comes_out_when_all_are_done():
    done = []

    def work(i):
        if i == 0:
            raise ValueError("no")
        time.sleep(0.02)
        done.append(i)

    with pytest.raises(ValueError, match="no"):
        together(work, 2, 2)
    assert done == [1]


def test_threads_in_use_are_those_of_the_call_and_one_elsewhere():
    assert in_use() == 1
    with using(3):
        assert in_use() == 3
        assert together(lambda _: in_use(), 2, 2) == [3, 1]
    assert in_use() == 1


@pytest.mark.parametrize("n_threads", [1, 3])
def test_calls_apart_have_the_deadline_and_those_in_threads_one_thread_each(n_threads):
    def work():
        return current(), in_use(), threading.current_thread()

    with within(Deadline(60.0)) as deadline, using(n_threads):
        found = concurrently(work, work)
    assert [one[0] for one in found] == [deadline, deadline]
    assert [one[1] for one in found] == [n_threads, 1]
    assert (found[0][2] is found[1][2]) == (n_threads == 1)


def test_what_one_thread_needs_another_may_leave():
    deadline, there, seen = Deadline(0.0), threading.Event(), threading.Event()

    def needs():
        with deadline.needed(), deadline.needed():
            there.set()
            assert seen.wait(10.0)
            inside = deadline.over
        return inside, deadline.over

    def leaves():
        assert there.wait(10.0)
        over = deadline.over
        seen.set()
        return over

    assert together(lambda i: (needs, leaves)[i](), 2, 2) == [(False, True), True]


@pytest.mark.parametrize("n_threads", [1, 3])
def test_a_call_shares_items_between_its_threads_in_order(n_threads):
    with using(n_threads):
        found = list(shared(lambda i: (i, threading.current_thread()), range(40)))
    assert [i for i, _ in found] == list(range(40))
    assert (threading.current_thread() in {thread for _, thread in found}) == (n_threads == 1)


@pytest.mark.parametrize("start", [5, 60])
def test_merges_that_threads_look_for_are_those_of_one_thread(start):
    rng = np.random.default_rng(4)
    truth = rng.integers(3, size=400)
    X = rng.normal(0.0, 9.0, (3, 2))[truth] + rng.normal(size=(400, 2))
    problem = Problem(X, families.Gaussian(0.0, 81.0, 1.0), priors.DirichletProcess(1.0))
    labels = np.unique(truth * start + rng.integers(start, size=400), return_inverse=True)[1]
    found = []
    for n_threads in (1, 2, 5):
        run = Refinement(problem, labels, History(None, None), as_rng(0), n_threads)
        run.merge()
        found.append(run.state.labels.copy())
    assert len(np.unique(found[0])) < labels.max()
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_what_has_not_begun_after_an_error_never_does():
    begun, lock = [], threading.Lock()

    def work(i):
        with lock:
            begun.append(i)
        if i == 0:
            raise ValueError("no")
        time.sleep(0.01)

    with pytest.raises(ValueError, match="no"):
        list(each(work, range(200), 2))
    n_begun = len(begun)
    assert n_begun < 200
    time.sleep(0.05)
    assert len(begun) == n_begun
    assert list(each(lambda i: i, range(5), 2)) == list(range(5))  # the pool is of use again


def test_a_reader_that_leaves_early_waits_for_what_runs():
    done = []
    with closing(each(lambda i: (time.sleep(0.02), done.append(i)), range(50), 2)) as found:
        next(found)
    n_done = len(done)
    time.sleep(0.05)
    assert len(done) == n_done < 50


def test_a_forked_child_has_a_pool_of_its_own():
    list(each(time.sleep, [0.02] * 4, 2))
    time.sleep(0.05)  # until its threads are idle
    child = os.fork()
    if child == 0:
        os._exit(0 if list(each(abs, [-3, -4], 2)) == [3, 4] else 1)
    for _ in range(1000):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        time.sleep(0.01)
    else:
        os.kill(child, 9)
        os.waitpid(child, 0)
        pytest.fail("the child waits for threads that it does not have")
    assert status == 0
    assert pool(2) is pool(2)


def test_work_inside_of_work_does_not_wait_for_itself():
    def outer(i):
        return sum(each(lambda j: i * j, range(4), 2))

    assert list(each(outer, range(4), 2)) == [0, 6, 12, 18]


def test_products_take_one_thread():
    from threadpoolctl import threadpool_info

    np.ones((4, 4)) @ np.ones((4, 4))
    with single_products():
        assert all(
            one["num_threads"] == 1 for one in threadpool_info() if one["user_api"] == "blas"
        )


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("by", ["each", "map"])
def test_after_an_interrupt_in_submit_there_is_another_pool(by, error, monkeypatch):
    def run(work, items):
        return list(each(work, items, 2) if by == "each" else pool(2).map(work, items))

    def keeps_its_lock(idle, *args, **options):
        idle._cond.acquire()  # as if Ctrl-C came just after, and before it is noted
        raise error

    first = pool(2)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Semaphore, "acquire", keeps_its_lock)
        with pytest.raises(error):
            run(abs, [-1, -2, -3, -4])
    try:
        assert pool(2) is not first
        found = []
        later = threading.Thread(target=lambda: found.append(run(abs, [-3, -4])), daemon=True)
        later.start()
        later.join(10.0)
        assert found == [[3, 4]]
    finally:
        first._idle_semaphore._cond.release()


def test_a_pool_is_given_up_if_one_that_waits_is_interrupted():
    def interrupted(_):
        raise KeyboardInterrupt  # which the one that waits gets too

    first = pool(2)
    with pytest.raises(KeyboardInterrupt):
        list(first.map(interrupted, range(3)))
    second = pool(2)
    with pytest.raises(KeyboardInterrupt):
        list(each(interrupted, range(3), 2))
    assert len({first, second, pool(2)}) == 3


def test_an_interrupted_refinement_ends_with_another_pool(monkeypatch):
    pools = []

    def run(refinement, *_, **__):
        pools.append(refinement.threads)
        pool.cache_clear()
        pools.append(refinement.threads)
        raise KeyboardInterrupt

    monkeypatch.setattr(Refinement, "run", run)
    family, prior = families.Gaussian(0.0, 25.0, 1.0), priors.DirichletProcess(1.0)
    assert refine(np.zeros((9, 1)), np.zeros(9), family, prior, n_jobs=2).n_clusters == 1
    assert pools == [pools[0], pool(2)]
    assert pools[0] is not pools[1]
