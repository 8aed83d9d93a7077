"""The Dask cluster that holds rows or is to read them: the present client, or one for a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from dpsearch._extras import naming_extras


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
    with naming_extras("Dask's collections"):
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
