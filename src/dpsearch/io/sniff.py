"""The separator and the names of columns, recognised by the first lines of delimited text."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator

from dpsearch.io.table import MISSING

SEPARATORS = ",;\t|"
SAMPLE = 50  # lines that are examined
_LONGEST = 1 << 16  # characters of them


def head_of(blocks: Iterator[str]) -> list[str]:
    """Take pieces of text until they have enough lines, and return them."""
    taken, lines = [], 0
    for text in blocks:
        taken.append(text)
        lines += text.count("\n")
        if lines > SAMPLE:
            break
    return taken


def guess_separator(text: str, tabs: bool = False) -> str:
    """Return the separator that gives the first records equal numbers of fields.

    If there are several, the share of fields that are numbers decides.
    """
    best, best_score = "\t" if tabs else ",", (0.0, 0.0, 0)
    for separator in SEPARATORS:
        rows = first_rows(text, separator)
        widths = [len(row) for row in rows]
        common = max(set(widths), key=widths.count, default=1)
        if common == 1:
            continue
        cells = [cell for row in rows for cell in row]
        numbers = sum(is_number(cell, separator != ",") for cell in cells) / len(cells)
        score = (widths.count(common) / len(widths), numbers, common)
        if score > best_score:
            best, best_score = separator, score
    return best


def first_rows(text: str, separator: str) -> list[list[str]]:
    """Return the cells of the first lines; none if these cannot be read."""
    start = text[:_LONGEST]
    head = [line for line in start.split("\n")[:SAMPLE] if line.strip()]
    if len(head) > 1 and len(text) > len(start):
        head.pop()  # it may be incomplete
    try:
        rows = csv.reader(io.StringIO("\n".join(head), newline=""), delimiter=separator)
        return [row for row in rows if row]
    except csv.Error:
        return []


def count_titles(rows: list[list[str]], decimal_comma: bool) -> int:
    """Return how many rows come before the names of columns, such as a title or a date of export.

    At least half the cells of such rows are empty or absent.  The names are all different, none is
    a number, and no row below has more cells that are not empty.
    """
    filled = [[cell for cell in map(str.strip, row) if cell] for row in rows]
    most = max(map(len, filled), default=0)
    for k, cells in enumerate(filled[:-1]):
        texts = [cell for cell in cells if not is_number(cell, decimal_comma)]
        if len(cells) == most > 2:  # of two columns one may have no name
            return k if len(set(texts)) == most else 0
        if not texts or 2 * len(cells) > most:
            break
    return 0


def begins_with_names(
    first: list[str], below: list[list[str]], decimal_comma: bool
) -> tuple[bool, str | None]:
    """Return whether the first row names the columns, and a note if that is doubtful.

    It does if one of its cells is not a number, or if it is what pandas writes for columns without
    names: 0 … D−1, perhaps after the empty name of the index.
    """
    if not all(is_number(cell, decimal_comma) for cell in first):
        return True, None
    first = [cell.strip() for cell in first]
    below = [row for row in below if len(row) == len(first)]
    columns = [[cell.strip() for cell in column] for column in zip(*below)]
    fractional = [any(_is_fractional(cell, decimal_comma) for cell in column) for column in columns]
    if _is_header_of_pandas(first, columns, fractional):
        return True, f"{_shown(first)} is taken for column names; use --no-header if it is data"
    different = len(set(first)) == len(first)
    if different and all(cell.isdecimal() for cell in first) and columns and all(fractional):
        return False, f"{_shown(first)} is taken for data; use --header if it names the columns"
    return False, None


def _is_header_of_pandas(
    first: list[str], columns: list[list[str]], fractional: list[bool]
) -> bool:
    """Whether a row of numbers is 0 … D−1, or names all columns but an index without gaps."""
    indexed = len(first) > 1 and first[0] == "" and columns != [] and all(columns[0])
    if indexed and len(set(first)) == len(first):
        return True
    numbered = first == [str(j) for j in range(len(first))]
    return numbered and (len(first) > 2 or (len(first) == 2 and any(fractional)))


def _shown(first: list[str]) -> str:
    cells = ",".join(first)
    return f"the first line, {cells if len(cells) <= 40 else cells[:40] + '…'},"


def is_number(cell: str, decimal_comma: bool = False) -> bool:
    cell = cell.strip()
    if cell in MISSING:
        return True
    if decimal_comma:
        cell = cell.replace(",", ".", 1)
    try:
        float(cell)
    except ValueError:
        return False
    return "_" not in cell


def _is_fractional(cell: str, decimal_comma: bool) -> bool:
    """Whether this is a number but not an integer."""
    if cell in MISSING or not is_number(cell, decimal_comma):
        return False
    number = float(cell.replace(",", ".", 1) if decimal_comma else cell)
    return not number.is_integer()
