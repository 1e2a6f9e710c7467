"""Spool files: memory first, files when short, gone in the end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from egress.spool import Spool


def test_small_files_stay_in_memory(tmp_path: Path) -> None:
    with Spool(tmp_path, 1000) as spool:
        file = spool.file()
        file.write(b"abc")
        file.settle()
        with file.reader() as reader:
            assert reader.read() == b"abc"
        assert [p.name for p in spool.directory.iterdir()] == ["lock"]
        assert spool.size_bytes == 3
        file.remove()
        assert spool.size_bytes == 0


def test_short_of_memory_goes_to_disk_and_reads_back_whole(tmp_path: Path) -> None:
    with Spool(tmp_path, 10) as spool:
        file = spool.file()
        parts = [os.urandom(n) for n in (5, 700, 300_000, 1, 600_000)]
        for part in parts:
            file.write(part)
            file.settle()
            assert file.tell() == sum(len(p) for p in parts[: parts.index(part) + 1])
        with file.reader() as reader:
            assert reader.read() == b"".join(parts)
            reader.seek(5)
            assert reader.read(700) == parts[1]
        assert spool.size_bytes == file.size_bytes
        file.remove()
        file.remove()
        assert spool.size_bytes == 0
        assert len(list(spool.directory.iterdir())) == 1


def test_wiped_file_is_an_error_not_a_short_segment(tmp_path: Path) -> None:
    with Spool(tmp_path, 0) as spool:
        file = spool.file()
        file.write(b"x" * 10)
        file.settle()
        next(p for p in spool.directory.iterdir() if p.name != "lock").unlink()
        file.write(b"y")
        with pytest.raises(OSError, match="0 bytes, 10 were written"):
            file.settle()


def test_nothing_is_left(tmp_path: Path) -> None:
    with Spool(tmp_path, 0) as spool:
        file = spool.file()
        file.write(b"x")
        file.settle()
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    code = f"import os, pathlib, egress.spool; egress.spool.Spool(pathlib.Path({str(tmp_path)!r}), 0); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    with Spool(tmp_path, 0) as first, Spool(tmp_path, 0) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first.directory, second.directory])
