"""Delimited text in blocks of complete records, so that files of any size can be read.

Records end at a line end outside quotation marks.  A block has the line of the file on which each
of its records ends, so that errors can name it.
"""

from __future__ import annotations

import codecs
import contextlib
import csv
import io
import re
from collections.abc import Iterator
from typing import IO, Any, NamedTuple

import numpy as np

from dpsearch.errors import DataError, ParameterError

BLOCK = 1 << 24  # bytes read at a time
_LONGEST = 1 << 27  # bytes of one record


class Block(NamedTuple):
    text: bytes  # complete records, without blank lines
    lines: Any  # line of the file on which each record ends: a range or an array
    fields: Any  # number of fields of each record


@contextlib.contextmanager
def long_fields() -> Iterator[None]:
    """Let Python's csv read cells of any length, since a cell may hold a document."""
    before = csv.field_size_limit(_LONGEST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def check_encoding(encoding: str) -> None:
    """Raise `ParameterError` unless this is the name of an encoding of text."""
    try:
        "".encode(encoding)
        codecs.getincrementaldecoder(encoding)
    except (LookupError, ValueError) as error:  # there are also codecs from bytes to bytes
        raise ParameterError(f"unknown encoding {encoding!r}", parameter="--encoding") from error


def not_in_encoding(encoding: str, byte: int) -> DataError:
    return DataError(
        f"not {encoding.upper()} text (byte {byte}); give its --encoding, for example cp1252,"
        " or save it as UTF-8"
    )


def text_blocks(stream: IO[bytes], encoding: str, size: int) -> Iterator[str]:
    """Yield the text of a stream in pieces that end with a line outside quotation marks."""
    decoder = codecs.getincrementaldecoder(encoding)()
    rest, seen, lone = "", 0, None
    while True:
        data = stream.read(size)
        if seen == 0:
            _check_kind(data, encoding)
        try:
            text = decoder.decode(data, final=not data)
        except UnicodeError as error:  # without a position if a byte order mark is missing
            byte = seen + getattr(error, "start", 0)
            raise not_in_encoding(encoding, byte) from error
        if seen == 0:
            text = text.removeprefix("\ufeff")
            lone = "\n" not in text and "\r" in text[:-1]  # the line ends of old Macs
        seen += len(data)
        text = rest + (text.replace("\r", "\n") if lone else text)
        if not data:
            if text.count('"') % 2 and _open_quote(text):
                raise DataError("a quotation mark is opened and never closed")
            if text:
                yield text if text.endswith("\n") else text + "\n"
            return
        cut = _boundary(text)
        rest = text[cut:]
        if len(rest) > _LONGEST:
            raise DataError(f"a record is longer than {_LONGEST >> 20} MiB")
        if cut:
            yield text[:cut]


def _check_kind(data: bytes, encoding: str) -> None:
    if not data:
        raise DataError("the file is empty")
    if encoding.lower().replace("_", "-").startswith(("utf-16", "utf-32")):
        return
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError("not UTF-8 text (byte 0) but UTF-16: add --encoding utf-16")
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        raise DataError(f"not text: there is a NUL byte on line {line}")


def _boundary(text: str) -> int:
    """Return the end of the last complete record: an even number of quotation marks before it."""
    cut = text.rfind("\n") + 1
    quotes = text.count('"', 0, cut)
    while quotes % 2:
        shorter = text.rfind("\n", 0, text.rfind('"', 0, cut)) + 1
        quotes -= text.count('"', shorter, cut)
        cut = shorter
    return cut


def _open_quote(text: str) -> bool:
    """Whether a field that begins with a quotation mark does not end; other marks may be inches."""
    try:
        list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        return "unexpected end" in str(error)
    return False


def records(text: str, separator: str, first_line: int) -> Block:
    """Return records with the number of fields of each, without blank lines."""
    if '"' in text:
        return _quoted_records(text, separator, first_line)
    data = np.frombuffer(text.encode(), dtype=np.uint8)
    ends = np.flatnonzero(data == ord("\n"))
    blank = np.diff(ends, prepend=-1) == 1
    blank |= (np.diff(ends, prepend=-1) == 2) & (data[np.maximum(ends - 1, 0)] == ord("\r"))
    before = np.searchsorted(np.flatnonzero(data == ord(separator)), ends)
    fields = np.diff(before, prepend=0) + 1
    lines: Any = range(first_line, first_line + len(ends))
    if blank.any():
        lines = np.asarray(lines)[~blank]
        text = re.sub(r"(?:\r?\n)+", "\n", text).removeprefix("\n")
        fields = fields[~blank]
    return Block(text.encode(), lines, fields)


def _quoted_records(text: str, separator: str, first_line: int) -> Block:
    lines, fields = [], []
    rows = io.StringIO(newline="")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator)
    writer = csv.writer(rows, delimiter=separator, lineterminator="\n", quoting=csv.QUOTE_ALL)
    try:
        for cells in reader:
            if cells:
                lines.append(first_line + reader.line_num - 1)
                fields.append(len(cells))
                writer.writerow(cells)
    except csv.Error as error:
        line = first_line + reader.line_num - 1
        raise DataError(f"not a CSV file: {error}", line=line) from error
    return Block(rows.getvalue().encode(), np.array(lines), np.array(fields))
