"""Files are written completely or not at all."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from dpsearch._files import atomic_folder, atomic_write


def test_a_file_appears_when_it_is_whole(tmp_path):
    path = tmp_path / "file.txt"
    with atomic_write(path, "w") as stream:
        stream.write("größe\n")
        stream.flush()
        assert not path.exists()
        (temporary,) = tmp_path.iterdir()
        assert temporary.name.startswith(".file.txt.")
    assert path.read_bytes() == "größe\n".encode()
    assert list(tmp_path.iterdir()) == [path]
    with atomic_write(str(path)) as stream:
        stream.write(b"new")
        assert path.read_text(encoding="utf-8") == "größe\n"
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_a_write_that_ends_badly_changes_nothing(error, tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fail():
        with atomic_write(path) as stream:
            stream.write(b"half")
            raise error

    with pytest.raises(error):
        fail()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_rename_that_fails_leaves_no_temporary_file(tmp_path, monkeypatch):
    def refuse(source, target):
        raise PermissionError(13, "Permission denied", target)

    def write():
        with atomic_write(tmp_path / "file") as stream:
            stream.write(b"all of it")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(PermissionError):
        write()
    assert list(tmp_path.iterdir()) == []


def test_files_have_the_usual_permissions(tmp_path):
    with atomic_write(tmp_path / "atomic") as stream:
        stream.write(b"x")
    (tmp_path / "plain").write_bytes(b"x")
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("atomic", "plain")]
    assert modes[0] == modes[1]


def test_folders_that_are_not_there_or_in_the_way(tmp_path):
    def write(path):
        with atomic_write(path) as stream:
            stream.write(b"x")

    with pytest.raises(FileNotFoundError, match="no such folder.*nowhere'"):
        write(tmp_path / "nowhere" / "file")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError, match="is a folder.*folder'"):
        write(tmp_path / "folder")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


# -- processes that are killed -----------------------------------------------------------------

KILL_EVERYWHERE = """
import os, shutil, sys
from pathlib import Path
from dpsearch import _files
from studies.attacks.inject import in_child, kill_at

kind, base = sys.argv[1], Path(sys.argv[2])

def killed_at(number, work):
    code = in_child(lambda: (kill_at(number), work()))
    assert code in (0, -9), code
    return code == -9

KNOWN = frozenset({"a", "b", "stale"})
if kind == "one by one":
    _files._exchange = lambda one, other: False
out = base / "out"

def begin(n):
    shutil.rmtree(base)
    base.mkdir()
    if kind != "new":
        out.mkdir()
        for name in ("a", "b", "stale", "mine"):
            (out / name).write_text("old " + name)
        (out / "deep").mkdir()
        (out / "deep" / "too").write_text("mine")

def write(text):
    with _files.atomic_folder(out, KNOWN, force=True) as folder:
        for name in ("a", "b"):
            (folder / name).write_text(text + " " + name)

def known():
    return {file.name: file.read_text() for file in out.iterdir() if file.name in KNOWN}

OLD = {} if kind == "new" else {name: "old " + name for name in ("a", "b", "stale")}
NEW = {"a": "new a", "b": "new b"}
seen, n = set(), 1
while True:
    begin(n)
    killed = killed_at(n, lambda: write("new"))
    found = known() if out.exists() else {}
    if kind == "one by one":
        assert all(found[name] in (OLD[name], NEW[name]) for name in ("a", "b")), (n, found)
    else:
        assert found in (OLD, NEW), (n, found)
    seen.add(str(found))
    if kind != "new":
        assert (out / "mine").read_text() == "old mine", n
    write("next")  # the next run works, and leaves nothing but what it should
    assert known() == {"a": "next a", "b": "next b"}, n
    assert [path.name for path in base.iterdir()] == ["out"], (n, list(base.iterdir()))
    names = {path.name for path in out.iterdir()} - set(KNOWN)
    assert names == (set() if kind == "new" else {"mine", "deep"}), (n, names)
    if kind != "new":
        assert (out / "deep" / "too").read_text() == "mine", n
    if not killed:
        break
    n += 1
assert len(seen) >= 2, seen
print(n)
"""

KILL_A_FILE = """
import sys
from pathlib import Path
from dpsearch._files import atomic_write
from studies.attacks.inject import in_child, kill_at

base = Path(sys.argv[2])
base.mkdir(exist_ok=True)

def killed_at(number, work):
    code = in_child(lambda: (kill_at(number), work()))
    assert code in (0, -9), code
    return code == -9

path = base / "file"

def write(text):
    with atomic_write(path) as stream:
        stream.write(text)

n, seen = 1, set()
while True:
    write(b"old")
    killed = killed_at(n, lambda: write(b"new" * 10_000))
    assert path.read_bytes() in (b"old", b"new" * 10_000), n
    seen.add(path.read_bytes())
    write(b"next")
    assert list(base.iterdir()) == [path], (n, list(base.iterdir()))
    if not killed:
        break
    n += 1
assert len(seen) == 2
print(n)
"""


def run_script(script, kind, tmp_path):
    path = [str(Path(__file__).parents[2]), *sys.path]
    done = subprocess.run(
        [sys.executable, "-c", script, kind, str(tmp_path / "base")],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(path)}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a child that is killed needs fork")
@pytest.mark.parametrize(
    ("kind", "script"),
    [("new", KILL_EVERYWHERE), ("exchanged", KILL_EVERYWHERE), ("one by one", KILL_EVERYWHERE),
     ("file", KILL_A_FILE)],
)  # fmt: skip
def test_a_process_that_is_killed_at_any_system_call(kind, script, tmp_path):
    """The file is the old or the new one, complete, and the next run removes temporary files."""
    if kind == "exchanged" and not sys.platform.startswith("linux"):
        pytest.skip("folders are exchanged on Linux")
    (tmp_path / "base").mkdir()
    assert run_script(script, kind, tmp_path) > 8


def test_what_another_process_is_writing_is_left_alone(tmp_path):
    with atomic_write(tmp_path / "file") as one:
        one.write(b"one")
        with atomic_write(tmp_path / "file") as other:
            other.write(b"other")
        assert (tmp_path / "file").read_bytes() == b"other"
    assert (tmp_path / "file").read_bytes() == b"one"
    known = frozenset({"a"})
    with atomic_folder(tmp_path / "out", known, force=True) as one:
        (one / "a").write_text("one")
        with atomic_folder(tmp_path / "out", known, force=True) as other:
            (other / "a").write_text("other")
            (tmp_path / "out").mkdir()
            (tmp_path / "out" / "mine").write_text("mine")
        assert (tmp_path / "out" / "a").read_text() == "other"
    assert (tmp_path / "out" / "a").read_text() == "one"
    assert (tmp_path / "out" / "mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "out"]


def test_the_current_folder_stays_where_it_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    number = tmp_path.stat().st_ino
    for text in ("1", "2"):
        with atomic_folder(".", frozenset({"a"}), force=True) as folder:
            (folder / "a").write_text(text)
        assert (tmp_path / "a").read_text() == text
    assert tmp_path.stat().st_ino == number
    assert os.listdir() == ["a"]
