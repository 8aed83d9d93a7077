"""`Triage`: the decisions about the columns of a table, to print and to store."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpsearch.errors import ParameterError

ROLES = (
    "number", "skewed", "count", "ordinal", "category", "date", "angle", "text", "identifier",
    "constant", "copy", "target", "nested",
)  # fmt: skip
USED, READ, PARTS, DROPPED = TREATMENTS = ("used as it is", "read", "parts", "dropped")
_NAMES = 100  # characters of names on a line that summarises columns


class Entry(NamedTuple):
    """The decision about a column of a table."""

    name: str
    role: str
    treatment: str
    reason: str
    changed: bool = False  # whether some of its values are replaced, or taken as missing

    @property
    def stands_out(self) -> bool:
        return self.changed or self.treatment in (DROPPED, PARTS)


@dataclass(frozen=True)
class Triage:
    """What is made of each column of a table; `print` shows it."""

    entries: tuple[Entry, ...]

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)

    def __getitem__(self, name: str) -> Entry:
        found = next((entry for entry in self.entries if entry.name == name), None)
        if found is None:
            raise KeyError(name)
        return found

    @property
    def dropped(self) -> tuple[str, ...]:
        """The names of the columns that are not clustered by."""
        return tuple(entry.name for entry in self.entries if entry.treatment == DROPPED)

    def shown(self, most: int) -> tuple[Entry, ...]:
        """Return all entries, or those that stand out if there are more than `most`."""
        if len(self.entries) <= most:
            return self.entries
        return tuple(entry for entry in self.entries if entry.stands_out)[:most]

    def table(self, most: int = 40) -> str:
        """Return a line for each column that is `shown`, and the names of the others by role."""
        shown = self.shown(most)
        lines = (
            [("column", "role", "treatment", "why"), *(one[:4] for one in shown)] if shown else []
        )
        widths = [max((len(_short(line[k])) for line in lines), default=0) for k in range(3)]
        texts = [
            "  ".join(_short(cell).ljust(width) for cell, width in zip(line, widths))
            + f"  {line[3]}"
            for line in lines
        ]
        others: dict[tuple[str, str], list[str]] = {}
        for entry in self.entries if len(shown) < len(self.entries) else ():
            if entry not in shown:
                others.setdefault(entry[1:3], []).append(entry.name)
        texts += [_summary(role, treatment, names) for (role, treatment), names in others.items()]
        if others:
            all_of_them = f".table({len(self.entries)})"
            texts.append(f"all columns: triage in run.json; .entries or {all_of_them} in Python")
        return "\n".join(text.rstrip() for text in texts)

    __str__ = table

    def to_list(self) -> list[dict[str, Any]]:
        """Return plain values that JSON can hold."""
        return [entry._asdict() for entry in self.entries]

    @classmethod
    def from_list(cls, spec: Any) -> Triage:
        """Return the triage that `to_list` describes."""
        entries = tuple(Entry(**line) for line in spec)
        for entry in entries:
            known = entry.role in ROLES and entry.treatment in TREATMENTS
            if not known or not all(isinstance(text, str) for text in entry[:4]):
                raise ParameterError(f"column {entry.name!r}: unknown role or treatment")
        return cls(entries)


def _summary(role: str, treatment: str, names: Sequence[str]) -> str:
    """Return the number of columns treated alike, and as many of their names as fit on a line."""
    what = role if treatment == USED else f"{role}, {treatment}"
    texts = [_short(name) for name in names]
    ends = itertools.accumulate(len(text) + 2 for text in texts)
    n = max(1, sum(end <= _NAMES for end in ends))
    return f"{len(names):,} {what}: {', '.join(texts[:n])}{', …' if n < len(names) else ''}"


def _short(text: str) -> str:
    """Return a name on one line, shortened to 32 characters."""
    text = " ".join(text.split())
    return text if len(text) <= 32 else text[:31] + "…"
