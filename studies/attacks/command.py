"""`python -m studies attacks`."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
from pathlib import Path
from typing import Annotated

import typer

from studies import attacks as package
from studies.attacks.record import Outcome
from studies.attacks.rounds import Attack, in_processes
from studies.say import say

_BEGIN, _END = "<!-- attacks -->\n", "<!-- end of attacks -->\n"


def known_attacks() -> dict[str, Attack]:
    """Return by name the functions of this folder that take a count and return an `Outcome`."""
    found: dict[str, Attack] = {}
    for about in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{about.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            own = function.__module__ == module.__name__ and not name.startswith("_")
            counts = next(iter(function.__annotations__), None) == "count"
            if own and counts and function.__annotations__.get("return") in (Outcome, "Outcome"):
                found[name] = function
    return found


def attacks(
    chosen: Annotated[
        list[str] | None, typer.Argument(metavar="[NAME …]", help="Attacks. Default: all.")
    ] = None,
    count: Annotated[
        int, typer.Option(min=1, help="How often each is made; with --minutes, in each round.")
    ] = 20,
    seed: Annotated[int, typer.Option(min=0, help="Seed of what is random.")] = 0,
    minutes: Annotated[
        float | None,
        typer.Option(min=0, help="Processor time of each attack, all processes together."),
    ] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Processes for each attack, with different seeds.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Page to write the counts into; they are kept as JSON beside it."),
    ] = None,
) -> None:
    """Attack what dpsearch promises; the exit code is 1 if a promise was broken."""
    known = known_attacks()
    for name in chosen or ():
        if name not in known:
            raise typer.BadParameter(f"no attack {name!r}: known are {', '.join(known)}")
    failed = 0
    for name in chosen or known:
        if minutes is None and processes is None:
            outcome = known[name](count, seed)
        else:
            outcome = in_processes(known[name], count, seed, processes or 1, minutes)
        failed += outcome.failed
        say(f"{outcome.name}: {outcome.failed} of {outcome.tried} failed, {outcome.seconds:.0f} s")
        if out is not None:
            write_page(out, outcome)
    if failed:
        raise typer.Exit(1)


def write_page(page: Path, outcome: Outcome) -> None:
    """Put an outcome into the page's table, next to those of other attacks."""
    kept = page.with_suffix(".json")
    outcomes = json.loads(kept.read_text()) if kept.exists() else {}
    outcomes[outcome.name] = outcome._asdict() | {"seconds": round(outcome.seconds, 1)}
    kept.write_text(json.dumps(outcomes, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    text = page.read_text()
    before, _, rest = text.partition(_BEGIN)
    _, found, after = rest.partition(_END)
    if not found:
        raise typer.BadParameter(f"{page} has no lines {_BEGIN.strip()} and {_END.strip()}")
    page.write_text(before + _BEGIN + _table(outcomes) + _END + after)


def _table(outcomes: dict[str, dict[str, str | int | float]]) -> str:
    lines = ["| attack | description | times | promises broken | minutes |"]
    lines.append("| --- | --- | --- | --- | --- |")
    for name, one in sorted(outcomes.items()):
        counts = f"{one['tried']:,} | {one['failed']:,} | {float(one['seconds']) / 60.0:.1f}"
        lines.append(f"| {name} | {one['what']} | {counts} |")
    return "\n" + "\n".join(lines) + "\n\n"
