"""Rows on the workers of a Dask cluster: one task a shard and pass.

Down go the shards, as far as they say where rows are, and what a pass needs: candidates, or how
many rows to draw.  Up come totals, which workers have put together.  The labels of rows stay where
they were computed.  All tasks are pure, and the scheduler knows of what each was made: what a dead
worker had is computed again.  If the scheduler has forgotten everything, as after `Client.restart`,
all passes are asked for anew.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial, reduce
from operator import add, itemgetter
from typing import Any, NamedTuple

import numpy as np

from dpsearch._types import Ints, Labels, Matrix, Vector
from dpsearch.errors import WorkersError
from dpsearch.passes import chunk
from dpsearch.passes.chunk import Candidates, Own, Seeds, ShortLabels, Soft, Totals
from dpsearch.passes.dask_graph import RETRIES, Graph, Sources, TaskError, whole
from dpsearch.passes.rows import Encoding, blocks
from dpsearch.sources.shards import Shard, Survey, survey

_ANEW = 3  # times that all is asked for again after the scheduler has forgotten it
_PATIENCE = 60.0  # seconds to wait for a scheduler that is away


class State(NamedTuple):
    """What a worker keeps of a shard: labels, proposals, and the log base of its rows."""

    labels: ShortLabels
    choice: ShortLabels
    log_base: float


class Pass(NamedTuple):
    """What is asked of every shard; kept, so that it can be asked for again.

    Decisions come first.  With candidates they are proposed to the rows; with counts rows are
    drawn, with both those that their clusters, the candidates, describe worst.  With `soft` rows
    are shared between candidates of these weights and constants.
    """

    decisions: tuple[tuple[Ints, Ints] | None, ...]  # None: all labels 0
    candidates: Candidates | None = None
    n_clusters: int = 0
    counts: Ints | None = None
    seed: int = 0
    soft: tuple[Matrix, Vector, Own | None] | None = None

    @property
    def changes(self) -> bool:
        """Whether it proposes candidates or labels; what others leave behind is as it was."""
        return self.counts is None and (self.candidates is not None or self.soft is not None)


@dataclass(frozen=True)
class Part:
    """A shard and what is known of it.  Dask does not look into it, as it would into a tuple."""

    shard: Shard
    first: int  # the number of its first row in the whole
    expected: Any  # what its state is known by
    stays: bool  # whether its state after the pass is wanted


class Told(NamedTuple):
    """What a shard says beside what it finds: its log base, and what its state is known by."""

    log_base: float
    known_by: tuple[str, Ints] | None


class Answer(NamedTuple):
    """What shards find together, and what each of them tells."""

    found: Any
    told: list[Told]


class DaskRows:
    """Rows on the workers of a Dask cluster.  Shards are sent to them, and should be small."""

    def __init__(
        self,
        encoding: Encoding,
        shards: Sequence[Shard],
        client: Any,
        *,
        stay: bool = True,
    ) -> None:
        self.encoding, self.shards, self.client = encoding, shards, client
        self.stay = stay  # whether the cluster goes on after the fit, and keeps the labels
        self.progress: Callable[[int], None] | None = None  # with the number of shards done
        self.n_rows, self.n_shards = sum(shard.n_rows for shard in shards), len(shards)
        self.log_base = np.nan
        self._sources = Sources.of(shards)
        sizes = (shard.n_rows for shard in shards)
        self._first = list(itertools.accumulate(sizes, initial=0))[:-1]
        self._passes: list[Pass] = []  # the first, and those that change labels
        self._told: list[list[Told]] = []  # in each of them, by shard
        self._states: tuple[int, list[Any]] = 0, []  # futures, after so many of these passes
        self._decisions: tuple[tuple[Ints, Ints] | None, ...] = ()  # since the last of them

    def place(self, labels: Labels | None) -> None:
        assert labels is None
        self._decisions = (*self._decisions, None)

    def totals(self, n_clusters: int) -> Totals:
        totals: Totals = self._pass(Pass(self._decisions, n_clusters=n_clusters))
        return totals

    def assign(self, candidates: Candidates) -> Totals:
        totals: Totals = self._pass(Pass(self._decisions, candidates))
        return totals

    def soften(self, weights: Matrix, constants: Vector, own: Own | None) -> Soft:
        soft: Soft = self._pass(Pass(self._decisions, soft=(weights, constants, own)))
        return soft

    def decide(self, of_candidates: Ints, of_clusters: Ints) -> None:
        self._decisions = (*self._decisions, (of_candidates, of_clusters))

    def draw(self, counts: Ints, seed: int) -> Seeds:
        seeds: Seeds = self._pass(Pass(self._decisions, counts=counts, seed=seed))
        return seeds

    def outliers(self, weights: Matrix, constants: Vector, counts: Ints) -> Seeds:
        clusters = Candidates(np.empty(0, np.int64), np.empty(0, np.int64), weights, constants)
        seeds: Seeds = self._pass(Pass(self._decisions, clusters, counts=counts))
        return seeds

    def labels(self, empty: int = -1) -> Any:
        """A Dask array made of futures: labels stay with the workers until they are computed.

        Rows without any value get the label `empty`.
        """
        import dask.array as da
        from dask import delayed

        decisions = self._decisions
        one = partial(_labels, decisions=decisions, empty=empty)

        def ask() -> list[Any]:
            n = len(self._passes)
            graph, states = Graph(self.client), self._known(n)
            each = zip(states, self._expected(n), strict=True)
            keys = [graph.add("labels", one, *both) for both in each]
            return graph.futures(keys, [], keys, keys, self.progress)[0]

        futures = self._patiently(ask)
        parts = [
            da.from_delayed(delayed(future), shape=(shard.n_rows,), dtype=np.int64)
            for shard, future in zip(self.shards, futures, strict=True)
        ]
        labels = da.concatenate(parts)
        return labels if self.stay else da.from_array(labels.compute(), chunks=labels.chunks)

    def _pass(self, asked: Pass) -> Any:
        """Have every shard do a pass; return what they find together."""
        stays = not self._passes or asked.changes
        states: list[Any] = []

        def ask() -> list[Any]:
            nonlocal states
            before = self._known(len(self._passes))
            answer, states = self._asked(asked, len(self._passes), before, stays, self.progress)
            return [self.client.gather(answer)]

        (answer,) = self._patiently(ask)
        # Only now: an interrupted pass has not been.
        if stays:
            self._passes, self._told = [*self._passes, asked], [*self._told, answer.told]
            self._states, self._decisions = (len(self._passes), states), ()
        self.log_base = float(sum(one.log_base for one in answer.told))
        return answer.found

    def _expected(self, number: int) -> list[Any]:
        """What the pass before pass `number` told of each shard's state, to know it again by."""
        if not number:
            return [None] * len(self.shards)
        return [one.known_by for one in self._told[number - 1]]

    def _known(self, number: int) -> list[Any]:
        """Futures of states after so many passes; those that are forgotten are asked for again."""
        begin, states = self._states
        if begin > number or not _alive(states):
            begin, states = 0, [None] * len(self.shards)
        for n in range(begin, number):
            _, states = self._asked(self._passes[n], n, states, True)
        return states

    def _asked(
        self,
        what: Pass,
        number: int,
        states: Sequence[Any],
        stays: bool,
        progress: Callable[[int], None] | None = None,
    ) -> tuple[Any, list[Any]]:
        """Return futures of what all shards answer to a pass, when it is done, and of their states.

        What they find is put together by a tree of tasks: the same sums with any workers.
        """
        # As the result of a task, not scattered: then it is not lost with its workers.
        asked = self.client.submit(_same, (self.encoding, what), pure=False, retries=RETRIES)
        graph = Graph(self.client, self._sources)
        ones = [
            graph.add("pass", _one, asked, Part(shard, first, expected, stays), block, state)
            for shard, block, first, expected, state in zip(
                *self._sources[:2], self._first, self._expected(number), states, strict=True
            )
        ]
        found = [graph.add("found", itemgetter(0), one) for one in ones] if stays else ones
        groups = answers = graph.by_groups(found, _together, asked)
        while len(answers) > 1:
            answers = graph.by_groups(answers, _together, asked)
        done, kept = graph.futures(answers, ones if stays else [], ones, groups, progress)
        return done[0], kept

    def _patiently(self, function: Callable[[], Any]) -> list[Any]:
        return patiently(self.client, function)


def survey_by_dask(
    shards: Sequence[Shard],
    client: Any,
    n_sampled: Ints,
    seed: int,
    progress: Callable[[int], None] | None,
) -> list[Survey]:
    """Have every shard looked at by the workers."""
    sources = Sources.of(shards)

    def ask() -> list[Any]:
        graph = Graph(client, sources)
        ones = [
            graph.add("survey", _survey, shard, block, int(n_sampled[s]), [seed, s])
            for s, (shard, block) in enumerate(zip(*sources[:2], strict=True))
        ]
        groups = graph.by_groups(ones, list)
        return list(client.gather(graph.futures(groups, [], ones, groups, progress)[0]))

    return [one for group in patiently(client, ask) for one in group]


# -- on a worker ------------------------------------------------------------------------------


def _survey(shard: Shard, block: Any, n_sampled: int, seed: Sequence[int]) -> Survey:
    return survey(whole(shard, block), n_sampled, seed)


def together(found: Iterable[Any], what: Pass) -> Any:
    """Put together what several shards found: totals, shares, or with counts drawn rows."""
    if what.counts is not None:
        return chunk.least(list(found), what.counts)
    return chunk.summed(found) if what.soft is None else reduce(add, found)


def _together(answers: list[Answer], asked: tuple[Encoding, Pass]) -> Answer:
    told = [one for answer in answers for one in answer.told]
    return Answer(together((answer.found for answer in answers), asked[1]), told)


def _same(asked: Any) -> Any:
    return asked


def _one(
    asked: tuple[Encoding, Pass], part: Part, block: Any, before: tuple[Answer, State] | None
) -> tuple[Answer, State] | Answer:
    """Do a pass over a shard; return what it finds and tells, and the state after it."""
    encoding, what = asked
    first = part.first
    form, matrix = encoding.form(), encoding.load(whole(part.shard, block))
    if before is None:
        empty, base = encoding.check(matrix, first)
        labels = np.where(empty, -1, 0).astype(np.int32)
        state = State(labels, np.full(len(labels), -1, np.int32), base)
    else:
        state = before[1]
    labels, choice = _decided(state, part.expected, what.decisions)
    candidates, counts = what.candidates, what.counts

    if what.soft is not None:
        labels = labels.copy()

    def work(features: Any, at: slice) -> Any:
        if what.soft is not None:
            return chunk.soften(features, *what.soft, labels[at])
        if candidates is not None:
            return chunk.assign(features, labels[at], candidates, choice[at])
        if counts is not None:
            return chunk.draw(features, labels[at], first + at.start, counts, what.seed)
        return chunk.totals_of(features, labels[at], what.n_clusters)

    parts = blocks(form, matrix)
    if candidates is not None and counts is not None:
        found = chunk.outliers(parts, labels, candidates.weights, candidates.constants, counts)
    else:
        found = together((work(*part) for part in parts), what)
    answer = Answer(found, [Told(state.log_base, _known_by(what, found))])
    return (answer, State(labels, choice, state.log_base)) if part.stays else answer


def _labels(after: tuple[Answer, State], expected: Any, decisions: Any, empty: int) -> Labels:
    labels, _ = _decided(after[1], expected, decisions)
    return np.where(labels < 0, empty, labels).astype(np.int64)


def _decided(state: State, expected: Any, decisions: Any) -> tuple[ShortLabels, ShortLabels]:
    """Return labels and proposals after decisions.

    A state that had to be computed again must be what it was: clusters are made of it.
    """
    labels, choice = state.labels, state.choice.copy()
    if expected is not None:
        which, sizes = expected
        again = choice if which == "choice" else labels
        if not np.array_equal(np.bincount(again[again >= 0], minlength=len(sizes)), sizes):
            raise WorkersError(
                "a shard that was computed again came out different: its rows have changed, or the"
                " workers' processors or versions of dpsearch differ"
            )
    for one in decisions:
        if one is None:
            labels = np.minimum(labels, 0)
        else:
            labels = chunk.decided(labels, choice, *one)
        choice[:] = -1
    return labels, choice


def _known_by(asked: Pass, found: Any) -> Any:
    """What a shard's state is known by after a pass; None if the pass does not say."""
    if asked.counts is not None or asked.soft is not None:
        return None
    if asked.candidates is None:
        return "labels", found.sizes.astype(np.int64)
    everything = len(asked.candidates.starts) == 2 and (asked.candidates.groups == 0).all()
    return ("choice", found.sizes.astype(np.int64)) if everything else None


# -- errors -----------------------------------------------------------------------------------


def patiently(client: Any, function: Callable[[], Any]) -> list[Any]:
    """Call a function again if the scheduler has forgotten what it was asked."""
    with _clear_errors():
        for _ in range(_ANEW):
            try:
                return list(function())
            except _gone():
                _wait(client)
        return list(function())


def _wait(client: Any) -> None:
    """Wait a while for a scheduler that is away; Dask goes on looking for it meanwhile."""
    until = time.monotonic() + _PATIENCE
    while client.status == "connecting" and time.monotonic() < until:
        time.sleep(0.1)
    if client.status != "running":
        raise WorkersError(
            "the scheduler of the Dask cluster is gone, and with it the data of its workers"
        )


def _alive(futures: list[Any]) -> bool:
    return len(futures) > 0 and all(future.status != "cancelled" for future in futures)


def _gone() -> tuple[type[BaseException], ...]:
    """The errors of a scheduler that is gone or has forgotten."""
    from distributed.client import CancelledError, ClosedClientError
    from distributed.comm import CommClosedError

    return CancelledError, ClosedClientError, CommClosedError, ConnectionError, TimeoutError


@contextmanager
def _clear_errors() -> Iterator[None]:
    from distributed import KilledWorker

    try:
        yield
    except TaskError as failed:
        error = failed.__cause__
        assert error is not None
        if not isinstance(error, KilledWorker):
            raise error from None
        raise WorkersError(
            f"workers died again and again over the same shard ({error.task}), most likely"
            " because of too little memory: make shards smaller (rechunk, repartition), or give"
            " workers more memory or fewer threads; their logs say more"
        ) from error
    except _gone() as error:
        raise WorkersError(
            "the Dask cluster has lost its tasks again and again; data that only workers held"
            f" (X.persist()) cannot be read again: {error}"
        ) from error
