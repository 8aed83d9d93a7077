"""`python -m studies reproduce`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from studies.say import say


def reproduce(
    experiment: Annotated[str, typer.Argument(help="artificial, mnist, nips or all.")],
    quick: Annotated[
        bool, typer.Option("--quick", help="Smaller versions, in a few minutes.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for pages, tables and figures.")] = Path(
        "results"
    ),
    dimension: Annotated[
        list[int] | None,
        typer.Option(help="Of the artificial data; may be given again. Default: 1 and 2."),
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder with the data. Default: DPSEARCH_DATA.")
    ] = None,
    download: Annotated[
        bool, typer.Option("--download", help="Get MNIST from OpenML if it is not in the folder.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**32 - 1, help="Of whatever is random.")] = 0,
    jobs: Annotated[int, typer.Option(help="Processes or threads; -1 for all cores.")] = -1,
) -> None:
    """Repeat the paper's experiments: pages that set our figures beside the paper's.

    A run that was stopped goes on where it was: what is done is kept in OUT/cache. A quick run
    writes into OUT/quick.
    """
    import time

    from studies.reproduction.reproduce import DIMENSIONS, results_folder
    from studies.reproduction.reproduce import reproduce as run

    begun = time.perf_counter()
    done = run(
        experiment, out, quick=quick, dimensions=dimension or DIMENSIONS, data=data,
        download=download, seed=seed, n_jobs=jobs, tell=say,
    )  # fmt: skip
    seconds = time.perf_counter() - begun
    say(f"{', '.join(done)}: {results_folder(out, quick) / 'index.md'} ({seconds:.0f} s)")
