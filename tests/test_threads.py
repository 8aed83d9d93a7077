"""Work that threads share: its order, its errors, and what a fork leaves of the pool."""

from __future__ import annotations

import os
import threading
import time
from contextlib import closing

import numpy as np
import pytest

from dpsearch._threads import each, pool, single_products


@pytest.mark.parametrize("n_threads", [1, 3])
def test_results_come_in_order(n_threads):
    def slowest_first(i):
        time.sleep(0.002 * (10 - i))
        return i * i

    assert list(each(slowest_first, range(10), n_threads)) == [i * i for i in range(10)]


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
