"""Options that several commands share, written once and put into the signature of each."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

Command = Callable[..., None]


def parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(function, eval_str=True).parameters)


def with_options(command: Command, options: Callable[..., Any], name: str) -> Command:
    """Return a command that takes the parameters of `options` in place of its parameter `name`.

    What `options` returns for them is handed to the command as that argument.
    """
    own, extra = parameters(command), parameters(options)
    del own[name]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        value = options(**{key: given.pop(key) for key in extra})
        command(**given, **{name: value})

    return signed(run, {**own, **extra})


def signed(run: Command, wanted: dict[str, inspect.Parameter]) -> Command:
    """Let a function that takes any keywords say which: typer makes options of them."""
    keywords = [
        parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in wanted.values()
    ]
    run.__signature__ = inspect.Signature(keywords)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in keywords}
    return run
