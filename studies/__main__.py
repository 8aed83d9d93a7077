"""The studies' command line: `python -m studies`."""

from __future__ import annotations

import sys

import typer

from dpsearch.errors import DPSearchError
from studies.attacks.command import attacks
from studies.calibration.command import calibration
from studies.clouds.command import clouds
from studies.counts.command import counts
from studies.levels.command import levels
from studies.peers.command import peers
from studies.peers.unlisted import unlisted
from studies.peers.wider import wider
from studies.quadrature.command import quadrature
from studies.related.command import related
from studies.reproduction.command import reproduce
from studies.tables.command import tables

app = typer.Typer(
    help="The paper's experiments, dpsearch against other tools, its clusters on known ones, and"
    " attacks on its promises.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
for command in (
    reproduce, related, peers, unlisted, wider, levels, attacks, calibration, quadrature, clouds,
    tables, counts,
):  # fmt: skip
    app.command()(command)


def main() -> None:
    """Run a command; errors take one line, and Ctrl-C exits with 130."""
    try:
        app(prog_name="python -m studies")
    except DPSearchError as error:
        print(f"studies: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("studies: interrupted; the same command continues from here", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
