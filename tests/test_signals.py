"""Signal handlers wait while a compiler is at work."""

import os
import signal
import threading
import time
import types

import pytest

from dpsearch._signals import outside_compilers


class Told(Exception):
    pass


def tell(number, frame):
    raise Told


@pytest.mark.skipif(os.name != "posix", reason="signals of POSIX")
def test_a_signal_waits_for_the_compiler():
    """The function stands for one of llvmlite's, which is recognised by its module."""
    ended = []

    def work(seconds):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pass
        ended.append(True)

    inside = types.FunctionType(
        work.__code__, {"__name__": "llvmlite.binding", "time": time}, None, None, work.__closure__
    )
    before = signal.signal(signal.SIGUSR1, outside_compilers(tell))
    try:
        with pytest.raises(Told):  # noqa: PT012
            os.kill(os.getpid(), signal.SIGUSR1)
            work(5.0)
        assert not ended
        with pytest.raises(Told):  # noqa: PT012
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            inside(0.3)
            work(5.0)
        assert ended == [True]
    finally:
        signal.signal(signal.SIGUSR1, before)
