"""What a command prints: messages on standard error, results on standard output."""

from __future__ import annotations

import json
import math
from typing import Any

from rich.console import Console


class Messages:
    """Lines on standard error, which `--quiet` silences."""

    def __init__(self, quiet: bool = False) -> None:
        self.console = Console(stderr=True, quiet=quiet)

    def print(self, line: str) -> None:
        # As it is: names of files may look like markup.
        self.console.print(line, markup=False, highlight=False, soft_wrap=True, emoji=False)


def print_json(content: Any) -> None:
    """Print one object on one line.  JSON has no infinity, which becomes null."""
    print(json.dumps(plain(content), ensure_ascii=False, default=str))  # dates, as they print


def plain(value: Any) -> Any:
    """Turn NumPy's values into those that JSON has."""
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
