"""The Dask cluster that holds rows or is to read them: the present client, or one for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpsearch.errors import ParameterError


def dask_or_error() -> None:
    """Say how to get Dask if it is not there."""
    try:
        import distributed  # noqa: F401
    except ImportError as error:
        raise ParameterError('Dask is not installed: pip install "dpsearch[dask]"') from error


def present_client() -> Any:
    """The client that Dask's collections would use; None if there is none."""
    distributed = sys.modules.get("distributed")  # without it there can be no client
    if distributed is None:
        return None
    try:
        return distributed.get_client()
    except ValueError:
        return None


@contextmanager
def some_client() -> Iterator[tuple[Any, bool]]:
    """The present client, or one of a local cluster that lives as long as the block.

    Also says whether it stays afterwards, with what its workers have.
    """
    dask_or_error()
    from distributed import Client, LocalCluster

    client = present_client()
    if client is not None:
        yield client, True
        return
    # Threads suffice, since kernels hold no lock; processes would import the caller's script.
    with (
        LocalCluster(processes=False, dashboard_address=":0") as cluster,
        Client(cluster) as local,
    ):
        yield local, False
