"""What the names of columns say, as patterns of their words, and which may be meant."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

_BETWEEN = re.compile(r"[\W_]+|(?<=[a-z0-9])(?=[A-Z])")
# Whom a number may be given to.
_WHO = (
    r"(account|case|client|customer|employee|household|invoice|member|order|participant|patient"
    r"|person|policy|record|resp|respondent|sample|serial|specimen|student|subj|subject|ticket|user)"
)
IDENTIFIER = re.compile(
    rf"(?i)(.* )?(ids?|uuid|guid|{_WHO}id|id ?(no|nr|num)|seq ?(n|no|nr|num)|mrn"
    r"|zip ?(code)?|post(al)? ?code|phone|ssn|isbn|e ?mail)|id .*"
)
# Of numbers that all differ: "number of" and "total number" count something, and PID may be a
# party's.
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
    """Return the words of a name with blanks between them.

    >>> words_of("customer_id"), words_of("patientID"), words_of("Wind.dir (10 m)")
    ('customer id', 'patient ID', 'Wind dir 10 m')
    """
    return _BETWEEN.sub(" ", name).strip()


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
