"""The attacks are found, counted, and notice broken promises."""

import inspect
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dpsearch.errors import ModelFileError
from studies.attacks import fuzz, rounds
from studies.attacks.command import known_attacks, write_page
from studies.attacks.record import Outcome
from studies.attacks.rounds import in_processes, in_rounds

ROOT = Path(__file__).parents[2]
OWN = {
    "kills", "refusals", "rivals", "interrupts", "stops", "memory", "clocks", "cluster",
    "fuzz_model_file", "fuzz_csv", "fuzz_command_line", "fuzz_problem",
}  # fmt: skip


def test_every_attack_is_found_and_takes_a_count_and_a_seed():
    found = known_attacks()
    assert set(found) >= OWN
    for attack in found.values():
        assert list(inspect.signature(attack).parameters) == ["count", "seed"]
        assert attack.__doc__
    words = (ROOT / "Makefile").read_text().split()
    assert set(words) >= OWN


def test_counts_of_different_days_share_the_page(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- attacks -->\nold\n<!-- end of attacks -->\nafter\n")
    write_page(page, Outcome("b", "second", 1000, 0, 1.23))
    write_page(page, Outcome("a", "first", 5, 1, 2.0))
    write_page(page, Outcome("b", "second", 2000, 0, 90.0))
    lines = page.read_text().split("\n")
    assert [line for line in lines if line.startswith(("| a", "| b"))] == [
        "| attack | description | times | promises broken | minutes |",
        "| a | first | 5 | 1 | 0.0 |",
        "| b | second | 2,000 | 0 | 1.5 |",
    ]
    assert lines[0] == "before"
    assert lines[-2] == "after"
    kept = json.loads((tmp_path / "page.json").read_text())
    assert kept["b"] == {
        "name": "b", "what": "second", "tried": 2000, "failed": 0, "seconds": 90.0
    }  # fmt: skip
    page.write_text("no place for it")
    with pytest.raises(typer.BadParameter, match="end of attacks"):
        write_page(page, Outcome("a", "first", 5, 1, 2.0))


def test_the_page_has_what_was_counted():
    kept = json.loads((ROOT / "docs" / "reliability.json").read_text())
    page = (ROOT / "docs" / "reliability.md").read_text()
    for name, one in kept.items():
        row = f"| {name} | {one['what']} | {one['tried']:,} | {one['failed']:,} | "
        assert f"{row}{one['seconds'] / 60.0:.1f} |" in page
        assert one["failed"] == 0


def counted(count, seed):
    return Outcome("counted", str(seed), count, 0, 0.5)


def dies(count, seed):
    os._exit(3)


@pytest.mark.slow
def test_processes_have_different_seeds_and_add_up():
    seeds = set()

    def noted(count, seed):
        seeds.add(seed)
        return Outcome("noted", "", count, 0, 0.0)

    for number in range(3):
        assert in_rounds(noted, 4, [0, number], None).tried == 4
    assert len(seeds) == 3
    whole = in_processes(counted, 5, 0, 2, None)
    assert (whole.tried, whole.failed, whole.seconds) == (5, 0, 1.0)
    assert in_processes(dies, 4, 0, 1, None).failed == 1


def test_rounds_go_on_until_time_is_spent(monkeypatch):
    spent = iter([30.0, 50.0, 70.0])
    monkeypatch.setattr(rounds, "_processor_time", lambda: next(spent))
    assert in_rounds(counted, 7, [0], 1.0).tried == 21


@pytest.mark.slow
def test_fuzz_notices_an_error_of_another_kind(monkeypatch):
    outcome = fuzz.fuzz_model_file(15, 0)
    assert (outcome.tried, outcome.failed) == (15, 0)

    def careless(path):
        raise KeyError("pool")

    monkeypatch.setattr(fuzz, "load", careless)
    assert fuzz.fuzz_model_file(15, 0).failed == 1

    def refuse(path):
        raise ModelFileError("damaged", source=path)

    monkeypatch.setattr(fuzz, "load", refuse)
    assert fuzz.fuzz_model_file(15, 0).failed == 0


PLANTED = """
import contextlib, sys
import dpsearch._archive, dpsearch._files, dpsearch.io.output
from studies.attacks import arena, kills, victims

@contextlib.contextmanager
def careless(path, mode="wb", *, force=True):
    with open(path, mode) as stream:
        yield stream

if sys.argv[1] == "careless":
    for module in (dpsearch._archive, dpsearch._files, dpsearch.io.output):
        module.atomic_write = careless
stream = next(victim for victim in victims.VICTIMS if victim.name == "partial_fit and save")
arena.VICTIMS = kills.VICTIMS = (stream,)
print(kills.kills(40, 0).failed)
"""


@pytest.mark.slow
@pytest.mark.parametrize("planted", ["careless", "none"])
def test_kills_notice_files_that_are_half_written(planted):
    done = subprocess.run(
        [sys.executable, "-c", PLANTED, planted], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    failed = int(done.stdout.split()[-1])
    assert (failed > 0) == (planted == "careless"), done.stdout
