"""Files are written completely or not at all."""

import os
import stat

import pytest

from dpsearch._files import atomic_write


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
