"""Tables with columns of every kind that files contain, and some that they should not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

WORDS = np.array(["the", "cat", "sat", "on", "a", "mat", "today", "again"], dtype=object)


def _labels(rng: Any, n: int, n_levels: int) -> Any:
    return np.array([f"level {k}" for k in range(n_levels)], dtype=object)[
        rng.integers(n_levels, size=n)
    ]


def _dates(rng: Any, n: int, form: str, days: int = 800) -> list[str]:
    first = np.datetime64("2019-03-04T05:06:07")
    moments = first + rng.integers(days * 86400, size=n).astype("timedelta64[s]")
    return [str(text) for text in pd.Series(moments).dt.strftime(form)]


def _european(x: float) -> str:
    return f"{x:,.2f}".translate(str.maketrans(",.", ".,"))


# What a column may hold; each is a function of a generator and the number of rows.
COLUMNS: dict[str, Any] = {
    "number": lambda rng, n: rng.normal(size=n),
    "two groups": lambda rng, n: rng.normal(size=n) + 8.0 * rng.integers(2, size=n),
    "skewed": lambda rng, n: rng.lognormal(3.0, 2.0, size=n),
    "count": lambda rng, n: rng.poisson(3.0, size=n),
    "rating": lambda rng, n: rng.integers(1, 6, size=n),
    "year": lambda rng, n: rng.integers(1990, 2020, size=n),
    "month": lambda rng, n: rng.integers(1, 13, size=n),
    "wind dir": lambda rng, n: rng.uniform(0.0, 360.0, size=n),
    "kind": lambda rng, n: _labels(rng, n, 4),
    "town": lambda rng, n: _labels(rng, n, 90),
    "flag": lambda rng, n: rng.random(n) < 0.3,
    "answer": lambda rng, n: np.array(["Yes", "no"], dtype=object)[rng.integers(2, size=n)],
    "money": lambda rng, n: [f"${x:,.2f}" for x in rng.lognormal(7.0, 1.0, size=n)],
    "betrag": lambda rng, n: [f"{x:.2f}".replace(".", ",") + " €" for x in rng.normal(9, 2, n)],
    "percent": lambda rng, n: [f"{x:.0f} %" for x in rng.uniform(0, 100, size=n)],
    "weight": lambda rng, n: [f"{x} kg" for x in rng.integers(40, 99, size=n)],
    "with gaps": lambda rng, n: np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n)),
    "mostly numbers": lambda rng, n: [
        "n/a" if rng.random() < 0.1 else f"{x:.2f}" for x in rng.normal(size=n)
    ],
    "codes": lambda rng, n: np.where(rng.random(n) < 0.1, -9999, rng.integers(9, size=n)),
    "date": lambda rng, n: _dates(rng, n, "%Y-%m-%d"),
    "moment": lambda rng, n: _dates(rng, n, "%d.%m.%Y %H:%M"),
    "american": lambda rng, n: _dates(rng, n, "%m/%d/%Y"),
    "stamp": lambda rng, n: pd.to_datetime(_dates(rng, n, "%Y-%m-%d %H:%M:%S")),
    "row": lambda rng, n: np.arange(n),
    "customer_id": lambda rng, n: rng.integers(10**6, 10**7, size=n),
    "email": lambda rng, n: [f"user{i}@example.org" for i in range(n)],
    "zip": lambda rng, n: [f"{x:05d}" for x in rng.integers(10**5, size=n)],
    "review": lambda rng, n: [" ".join(rng.choice(WORDS, 9)) for _ in range(n)],
    "constant": lambda rng, n: np.full(n, 7),
    "nearly constant": lambda rng, n: (np.arange(n) == n // 2).astype(int),
    "nothing": lambda rng, n: np.full(n, None),
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.normal(size=n)),
    "huge": lambda rng, n: np.where(rng.random(n) < 0.1, 1e300, rng.normal(size=n)),
    "odd words": lambda rng, n: rng.choice(["=1+1", "<b>", "ünï", "a,b", 'q"q', "\u202e"], n),
    "target": lambda rng, n: rng.integers(3, size=n),
    "hour": lambda rng, n: rng.integers(24, size=n),
    "latitude": lambda rng, n: rng.uniform(-90.0, 90.0, size=n).round(4),
    "quarter": lambda rng, n: [f"{x}Q{1 + x % 4}" for x in rng.integers(1990, 2020, size=n)],
    "clock": lambda rng, n: _dates(rng, n, "%H:%M"),
    "summe": lambda rng, n: [_european(x) for x in rng.lognormal(7.0, 1.0, size=n)],
    "two units": lambda rng, n: [
        f"{x} {'kg' if x % 2 else 'lb'}" for x in rng.integers(99, size=n)
    ],
    "several numbers": lambda rng, n: [f"{x} 2.5 {x + 1}" for x in rng.integers(99, size=n)],
    "range": lambda rng, n: [f"{x}-{x + 5}" for x in rng.integers(99, size=n)],
    "nine in ten": lambda rng, n: [f"name {x}" for x in rng.integers(max(1, 5 * n), size=n)],
    "mostly one": lambda rng, n: np.where(rng.random(n) < 0.01, "b", "a"),
    "true": lambda rng, n: np.full(n, True),
    "comment": lambda rng, n: np.where(rng.random(n) < 0.9, "", "see page 3, line 4"),
}
# Those that no CSV file holds.
OBJECTS: dict[str, Any] = {
    "lists": lambda rng, n: [[i, 1] for i in range(n)],
    "dictionaries": lambda rng, n: [{"a": i} for i in range(n)],
    "mixed": lambda rng, n: [(1, "a", 2.5, None, True)[i % 5] for i in range(n)],
    "categorical": lambda rng, n: pd.Categorical(_labels(rng, n, 3)),
    "ordered": lambda rng, n: pd.Categorical(_labels(rng, n, 3), ordered=True),
    "spans": lambda rng, n: pd.to_timedelta(rng.integers(10**6, size=n), unit="s"),
    "complex": lambda rng, n: rng.normal(size=n) + 1j,
    "bytes": lambda rng, n: [b"x"] * n,
}


def spoiled(frame: pd.DataFrame, rng: Any) -> pd.DataFrame:
    """Return some rows in another order, with cells new to the table, and an empty row."""
    rows = rng.permutation(len(frame))[: max(1, len(frame) // 2)]
    out = frame.iloc[rows].astype(object).reset_index(drop=True)
    new = np.array(["?", "never seen", "1e999", "-3.5", "31.02.2020", "ü", None], dtype=object)
    out = out.mask(rng.random(out.shape) < 0.1, lambda cells: rng.choice(new, size=cells.shape))
    return pd.concat([out, pd.DataFrame([[None] * out.shape[1]], columns=out.columns)])


def odd_table(rng: Any, *, objects: bool = False) -> pd.DataFrame:
    """Return a table of some of these columns, perhaps with a copy, of a few rows or more."""
    makers = COLUMNS | (OBJECTS if objects else {})
    n = int(rng.choice([1, 2, 3, 7, 20, 60, 150]))
    names = rng.choice(list(makers), size=int(rng.integers(1, 7)), replace=False).tolist()
    frame = pd.DataFrame({name: makers[name](rng, n) for name in names})
    if rng.random() < 0.2:
        frame[f"{names[0]} again"] = frame[names[0]]
    if rng.random() < 0.3:
        gaps = rng.random(frame.shape) < 0.2
        frame = frame.astype(object).mask(gaps)
    return frame
