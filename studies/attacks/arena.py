"""The place where victims are attacked: their folders, and the judgement of what is left there."""

from __future__ import annotations

import shutil
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from dpsearch import DPMixture, gibbs
from studies.attacks.inject import Writes, in_child
from studies.attacks.victims import GAUSSIAN, PRIOR, VICTIMS, Victim, rows
from studies.say import say


class Trial(NamedTuple):
    """A victim with the files before its work, and those when it is done."""

    victim: Victim
    before: Path  # a folder to be copied
    at_first: dict[str, str]
    at_last: dict[str, str]
    names: list[str]  # of all that is in the folder then
    seconds: float

    @contextmanager
    def folder(self) -> Iterator[Path]:
        """Return a copy of the folder as it was before."""
        place = Path(tempfile.mkdtemp(prefix="attack."))
        try:
            shutil.copytree(self.before, place, dirs_exist_ok=True)
            yield place
        finally:
            shutil.rmtree(place, ignore_errors=True)

    def n_writes(self) -> int:
        """The number of writes below its folder that the work makes."""
        with self.folder() as folder:
            said = folder.with_name(folder.name + ".count")

            def counted() -> None:
                hook = Writes(folder, 0)
                sys.addaudithook(hook)
                try:
                    self.victim.work(folder)
                finally:
                    said.write_text(str(hook.count))

            assert in_child(counted) == 0
            n_writes = int(said.read_text())
            said.unlink()
        return n_writes

    def judge(self, folder: Path) -> None:
        """Raise if something is half-written, or if repeating the work ends differently."""
        victim, found = self.victim, self.victim.state(folder)
        if victim.at_once == "all":
            assert found in (self.at_first, self.at_last), f"neither old nor new: {found}"
        elif victim.at_once == "each":
            for name, value in found.items():
                both = (self.at_first[name], self.at_last[name])
                assert value in both, f"{name} is neither old nor new"
        victim.check(folder)
        log = folder / "log"
        code = in_child(lambda: victim.work(folder), log)
        assert code == 0, f"the next run failed with {code}: {log.read_text()[-2000:]}"
        log.unlink()
        found = victim.state(folder)
        assert found == self.at_last, f"the next run ended otherwise: {found}"
        left = names(folder)
        assert left == self.names, f"left behind: {sorted(set(left) ^ set(self.names))}"


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def trials(only: str | None = None) -> Iterator[Trial]:
    """Return each victim after one undisturbed run of its work."""
    warm_up()
    for victim in VICTIMS:
        if only is not None and victim.name != only:
            continue
        before = Path(tempfile.mkdtemp(prefix="attack."))
        try:
            assert in_child(lambda v=victim, b=before: v.prepare(b)) == 0, victim.name  # type: ignore[misc]
            undisturbed = Trial(victim, before, victim.state(before), {}, [], 0.0)
            with undisturbed.folder() as folder:
                in_child(lambda v=victim, f=folder: v.work(f))  # type: ignore[misc]
            with undisturbed.folder() as folder:
                begun = time.perf_counter()
                assert in_child(lambda v=victim, f=folder: v.work(f)) == 0, victim.name  # type: ignore[misc]
                seconds = time.perf_counter() - begun
                yield undisturbed._replace(
                    at_last=victim.state(folder), names=names(folder), seconds=seconds
                )
        finally:
            shutil.rmtree(before, ignore_errors=True)


def warm_up() -> None:
    """Compile or load kernels once for all children, which a fork inherits."""
    X = rows()
    model = DPMixture(GAUSSIAN, 1.0, refine=False).fit(X)
    model.partial_fit(X).explain(X[:50])
    DPMixture(GAUSSIAN, 1.0, n_shards=2, n_jobs=1).fit(X)
    gibbs(X, GAUSSIAN, PRIOR, draws=2, rng=0)
    # Those of the pool are known to be gone in a child.
    others = [one for one in threading.enumerate() if not one.name.startswith("dpsearch-")]
    assert len(others) == 1, "a child would wait for threads that it does not have"


def failures(attempt: Callable[[], None], about: str) -> int:
    """Make one attempt; return 1 and print a message if a promise was broken, else 0."""
    try:
        attempt()
    except AssertionError as error:
        say(f"BROKEN, {about}: {error}")
        return 1
    except Exception:
        say(f"BROKEN, {about}: {traceback.format_exc()}")
        return 1
    return 0
