"""Optional libraries, and the extra of dpsearch that installs each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dpsearch.errors import MissingLibraryError

EXTRAS = {
    "anndata": "anndata", "array_api_compat": "gpu", "arviz": "arviz", "arviz_stats": "arviz",
    "dask": "dask", "distributed": "dask", "jinja2": "cli", "matplotlib": "plots",
    "mpmath": "exact", "polars": "cli", "rich": "cli", "torch": "gpu", "typer": "cli",
}  # fmt: skip


@contextmanager
def naming_extras(what: str) -> Iterator[None]:
    """Raise `MissingLibraryError` with the command to run if a library of an extra is missing.

    `what` names what needs the library, in the plural: "plots", "tables in files".
    """
    try:
        yield
    except ModuleNotFoundError as error:
        library = (error.name or "").partition(".")[0]
        if library not in EXTRAS:
            raise
        raise MissingLibraryError(
            f'{what} need {library}: pip install "dpsearch[{EXTRAS[library]}]"'
        ) from error
