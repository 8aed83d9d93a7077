"""Patterns for the names of columns, and suggestions for names that do not exist."""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Sequence

from dpsearch.errors import AbsentColumnsWarning

_BETWEEN = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")
# Who or what may be given a number.
_WHO = (
    r"(account|case|client|customer|employee|household|invoice|member|order|participant|patient"
    r"|person|policy|record|resp|respondent|sample|serial|specimen|student|subj|subject|ticket|user)"
)
IDENTIFIER = re.compile(
    rf"(?i)(.* )?(ids?|uuid|guid|{_WHO}id|id ?(no|nr|num)|seq ?(n|no|nr|num)|mrn"
    r"|zip ?(code)?|post(al)? ?code|phone|ssn|isbn|e ?mail)|id .*"
)
# For numbers that nearly all differ.  "number of" and "total number" are counts.
NUMBERED = re.compile(
    r"(?i)case|participant|patient|person|record|respondent|subj|subject|[ceopqsu]id"
    rf"|(.* )?{_WHO} ?(num|number)|.* (no|nr|code)"
)
INDEX = re.compile(r"(?i)(unnamed 0|column 0|index level 0|index|row ?names?|row|key)")
YEAR = re.compile(r"(?i).*year.*")
TARGET = re.compile(r"(?i)target|labels?|ground ?truth|y true|clusters?")
LAST_TARGET = re.compile(r"(?i)class")
CYCLES = (
    (re.compile(r"(?i)(.* )?(month|mo|mon)"), 1, 12, "month"),
    (re.compile(r"(?i)(.* )?(hour|hr)"), 0, 23, "hour"),
    (re.compile(r"(?i)(.* )?(week ?day|dow|day ?of ?week)"), 0, 6, "weekday"),
    (re.compile(r"(?i)(.* )?(week ?day|dow|day ?of ?week)"), 1, 7, "weekday"),
)
DIRECTION = re.compile(r"(?i).*(angle|bearing|azimuth|direction|heading|(^| )dir)")


def words_of(name: str) -> str:
    """Return the words of a name, separated by blanks.

    >>> words_of("customer_id"), words_of("patientID"), words_of("Wind.dir (10 m)")
    ('customer id', 'patient ID', 'Wind dir 10 m')
    """
    return _BETWEEN.sub(" ", name).strip()


def did_you_mean(
    wanted: Sequence[str], names: Sequence[str] | None, others: Sequence[str] | None = None
) -> str:
    """Return advice about names that do not exist: close ones among `others`, by default all."""
    if names is None:
        return "; the file has no column names: use column numbers, counted from 0"
    close = _close(wanted, names if others is None else others)
    if close:
        return f": did you mean {', '.join(map(repr, close))}?"
    some = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"; there are {some}"


def taken_as_missing(wanted: Sequence[str], names: Sequence[str]) -> bool:
    """Whether absent columns of new rows may be taken as missing; a warning then names them.

    They may not if all columns are absent, or if another column has a similar name.
    """
    absent = [name for name in wanted if name not in names]
    others = [name for name in names if name not in wanted]
    if len(absent) == len(wanted) or _close(absent, others):
        return False
    text = ", ".join(map(repr, absent))
    known = f"no column{'s' * (len(absent) > 1)} {text}, which the model was fitted with"
    warnings.warn(
        AbsentColumnsWarning(f"{known}: all such values are treated as missing"), stacklevel=3
    )
    return True


def _close(wanted: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names that are close to some that do not exist."""
    plain = {_plain(name): name for name in reversed(names)}
    found = [difflib.get_close_matches(_plain(name), plain, n=1) for name in wanted]
    return list(dict.fromkeys(plain[one] for close in found for one in close))


def _plain(name: str) -> str:
    """Return a name in lower case, without signs and blanks."""
    return re.sub(r"[\W_]+", "", name.casefold()) or name
