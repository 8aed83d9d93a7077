"""A step on a GPU that is recorded once and then played: to launch it again costs one call."""

# mypy: ignore-errors

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from dpsearch.passes.chunk import Totals


class Recorded:
    """A step from totals to totals, as a CUDA graph.

    Nothing in it may wait for the GPU or bring numbers to it.  Memory is shared with a recording
    that came before, which must not be played again.
    """

    def __init__(
        self, step: Callable[[Totals], Totals], totals: Totals, before: Recorded | None
    ) -> None:
        self._totals = Totals(*(x.clone() for x in totals))
        self._graph = torch.cuda.CUDAGraph()
        now, aside = torch.cuda.current_stream(), torch.cuda.Stream()
        aside.wait_stream(now)
        with torch.cuda.stream(aside), _no_collection():
            self._graph.capture_begin(
                pool=None if before is None else before._graph.pool(),
                capture_error_mode="thread_local",
            )
            try:
                self._set(step(self._totals))
            finally:
                self._graph.capture_end()
        now.wait_stream(aside)

    def _set(self, totals: Totals) -> None:
        for mine, new in zip(self._totals, totals, strict=True):
            mine.copy_(new)

    def play(self, totals: Totals, count: int) -> Totals:
        """Return what the step makes of totals, so many times."""
        self._set(totals)
        for _ in range(count):
            self._graph.replay()
        return Totals(*(x.clone() for x in self._totals))


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect no garbage: a recording that nobody needs may not be thrown away meanwhile."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
