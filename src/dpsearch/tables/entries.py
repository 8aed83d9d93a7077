"""`Triage`: what was decided about each column of a table, to be shown and stored."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpsearch.errors import ParameterError

ROLES = (
    "number", "skewed", "count", "ordinal", "category", "date", "angle", "text", "identifier",
    "constant", "copy", "target", "nested",
)  # fmt: skip
USED, READ, PARTS, DROPPED = TREATMENTS = ("used as it is", "read", "parts", "dropped")


class Entry(NamedTuple):
    """What is made of a column of a table."""

    name: str
    role: str
    treatment: str
    reason: str


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
        """Return the entries; of a wide table only of columns that are not used as they are."""
        if len(self.entries) <= most:
            return self.entries
        return tuple(entry for entry in self.entries if entry.treatment != USED)[:most]

    def table(self, most: int = 25) -> str:
        """Return a line for each column; see `shown`."""
        shown = self.shown(most)
        lines = [("column", "role", "treatment", "why"), *shown]
        widths = [max(len(_short(line[k])) for line in lines) for k in range(3)]
        texts = [
            "  ".join(_short(cell).ljust(width) for cell, width in zip(line, widths))
            + f"  {line[3]}"
            for line in lines
        ]
        hidden = len(self.entries) - len(shown)
        more = [f"and {hidden:,} more columns"] if hidden else []
        return "\n".join(text.rstrip() for text in [*texts, *more])

    __str__ = table

    def to_list(self) -> list[dict[str, str]]:
        """Return plain values that JSON can hold."""
        return [entry._asdict() for entry in self.entries]

    @classmethod
    def from_list(cls, spec: Any) -> Triage:
        """Return the triage that `to_list` describes."""
        entries = tuple(Entry(**line) for line in spec)
        for entry in entries:
            known = entry.role in ROLES and entry.treatment in TREATMENTS
            if not known or not all(isinstance(text, str) for text in entry):
                raise ParameterError(f"column {entry.name!r}: unknown role or treatment")
        return cls(entries)


def _short(text: str) -> str:
    """Return a name on one line."""
    text = " ".join(text.split())
    return text if len(text) <= 32 else text[:31] + "…"
