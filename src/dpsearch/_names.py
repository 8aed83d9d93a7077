"""Names of columns that are not there, and those that may be meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence


def did_you_mean(
    wanted: Sequence[str], names: Sequence[str] | None, others: Sequence[str] | None = None
) -> str:
    """Return advice about names that are not there; by default all others may be meant."""
    if names is None:
        return "; the file has no column names, so columns go by numbers from 0"
    plain = {_plain(name): name for name in reversed(names if others is None else others)}
    found = [difflib.get_close_matches(_plain(name), plain, n=1) for name in wanted]
    close = dict.fromkeys(repr(plain[name]) for names in found for name in names)
    if close:
        return f": did you mean {', '.join(close)}?"
    some = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"; there are {some}"


def _plain(name: str) -> str:
    """Return a name without what people write differently: cases and signs."""
    return re.sub(r"[\W_]+", "", name.casefold()) or name
