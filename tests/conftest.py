"""Fixtures that several test files share."""

import gc
import signal
import sys

import pytest

from dpsearch import cli

# A shell starts background jobs with Ctrl-C ignored, which programs inherit: tests send it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


# What is imported and collected lives to the end: looking through it for garbage again and again
# took a third of the time of collection, and a tenth of that of compilation.
gc.disable()


def pytest_collection_finish():
    gc.freeze()
    gc.enable()


@pytest.fixture
def run(monkeypatch, capsys, tmp_path):
    """Run `dpsearch` in a temporary folder: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    # Lines of progress come after seconds, which a busy machine may take for anything.
    monkeypatch.setattr("dpsearch.progress._EVERY", 3600.0)

    def run(*arguments):
        # The thread that ends a program which does not end by itself would end the tests.
        monkeypatch.setattr("dpsearch.cli.app.watch_signals", lambda: None)
        monkeypatch.setattr(sys, "argv", ["dpsearch", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capsys.readouterr()
        return ended.value.code or 0, said.out, said.err

    return run
