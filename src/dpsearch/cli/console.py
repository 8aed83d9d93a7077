"""Printing: messages on standard error, results on standard output."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Console


class Messages:
    """Lines on standard error (unless `--quiet`), or on standard output."""

    def __init__(self, quiet: bool = False, *, stderr: bool = True) -> None:
        self.console = Console(stderr=stderr, quiet=quiet)

    def print(self, line: str) -> None:
        # Names of files may look like markup.
        self.console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)


def print_json(content: Any) -> None:
    """Print one object on one line; infinity, which JSON lacks, becomes null."""
    print(json.dumps(plain(content), ensure_ascii=False, default=str))  # dates, as they print


def plain(value: Any) -> Any:
    """Convert NumPy values to those of JSON."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
