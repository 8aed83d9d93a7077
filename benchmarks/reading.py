"""How much memory a large CSV file takes to read.

    python -m benchmarks.reading [--out FILE.md] [--megabytes 200 2000]

Most of the file is a column of texts that is not read, so the table is small in comparison.
The figure is how far the peak memory of a new process exceeds that for a small file.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

ROWS = 10_000  # in a block
HEADER = b"a,b,c,d\n"
BLOCK = "".join(f"{i},{i % 7}.5,{'x' * 180},{i % 3}\n" for i in range(ROWS)).encode()
SUMS = [sum(i % 7 + 0.5 for i in range(ROWS)), sum(i % 3 for i in range(ROWS))]

WORK = """
import json, sys, time
from studies.peers.workers.run import peak_mb
from dpsearch.io import Reading, read_table

read_table(sys.argv[1], Reading(columns="1,3"))  # imports, and what Polars sets up
before, begun = peak_mb(), time.perf_counter()
table = read_table(sys.argv[2], Reading(columns="1,3"))
seconds = time.perf_counter() - begun
print(json.dumps([table.n_rows, table.X.sum(axis=0).tolist(), table.X.nbytes,
                  round(2**20 * (peak_mb() - before)), seconds]))
"""


class Measured(NamedTuple):
    size: int  # of the file, in bytes
    rows: int
    sums: list[float]  # of the columns that are read
    table: int  # bytes
    memory: int  # bytes above what a small file takes
    seconds: float


def measure(megabytes: float) -> Measured:
    """Write a file of at least this size, and read two of its columns."""
    with tempfile.TemporaryDirectory() as name:
        small, large = Path(name) / "small.csv", Path(name) / "large.csv"
        small.write_bytes(HEADER + BLOCK)
        n_blocks = int(1e6 * megabytes) // len(BLOCK) + 1
        with large.open("wb") as stream:
            stream.write(HEADER)
            for _ in range(n_blocks):
                stream.write(BLOCK)
        arguments = [sys.executable, "-c", WORK, str(small), str(large)]
        done = subprocess.run(arguments, check=True, capture_output=True, text=True)
        rows, sums, table, memory, seconds = json.loads(done.stdout)
        if [n_blocks * ROWS, *(n_blocks * one for one in SUMS)] != [rows, *sums]:
            raise RuntimeError(f"read {rows} rows with sums {sums}")
        return Measured(large.stat().st_size, rows, sums, table, memory, seconds)


def page(found: list[Measured]) -> str:
    lines = [
        "# Reading",
        "",
        "Written by `python -m benchmarks.reading`: two columns of a CSV file, most of which is"
        " text in other columns.",
        "",
        "| file, MB | rows | table, MB | memory taken, MB | seconds |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in found:
        lines.append(
            f"| {one.size / 1e6:,.0f} | {one.rows:,} | {one.table / 1e6:,.0f} |"
            f" {one.memory / 1e6:,.0f} | {one.seconds:,.1f} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path)
    parser.add_argument("--megabytes", type=float, nargs="+", default=[200, 2000])
    arguments = parser.parse_args()
    text = page([measure(size) for size in arguments.megabytes])
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
