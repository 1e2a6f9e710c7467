"""Spool files: memory first, files when short, gone in the end."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import tracemalloc
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.segments.spool import Spool
from formats.errors import ConfigError
from formats.topic_selection import TopicPattern, TopicRule
from replicator.config import EgressSettings, EgressTopicSettings
from replicator.services.egress import open_spool
from tests.examples import property_examples
from tests.fakes.small_disk import Quota


def test_what_is_written_is_kept_as_it_is(tmp_path: Path) -> None:
    """A buffer that grows is copied each time: it took a twentieth of the processor time of egress."""
    pieces = [bytes([n]) * 1_000_000 for n in range(32)]
    with Spool(tmp_path, 100_000_000) as spool:
        file = spool.file()
        tracemalloc.start()
        try:
            for piece in pieces:
                file.write(piece)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 1_000_000
        assert file.reader().read() == b"".join(pieces)


def test_what_goes_to_disk_is_copied_by_the_megabyte(tmp_path: Path) -> None:
    """When memory is short, a copy of all of it is too much."""
    pieces = [bytes([n]) * 300_000 for n in range(100)]
    with Spool(tmp_path, 1_000_000) as spool:
        file = spool.file()
        for piece in pieces:
            file.write(piece)
        tracemalloc.start()
        try:
            file.spill_if_needed()
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 3_000_000
        assert not spool.short_of_memory
        with file.reader() as reader:
            assert reader.read() == b"".join(pieces)


def test_only_bytes_are_written(tmp_path: Path) -> None:
    with Spool(tmp_path, 100) as spool, pytest.raises(TypeError):
        spool.file().write(5)


def test_a_buffer_that_its_owner_changes_later_is_copied(tmp_path: Path) -> None:
    with Spool(tmp_path, 100) as spool:
        file, buffer = spool.file(), bytearray(b"abc")
        file.write(buffer)
        file.write(memoryview(buffer)[1:])
        buffer[:] = b"xyz"
        assert file.reader().read() == b"abcbc"


def test_small_files_stay_in_memory(tmp_path: Path) -> None:
    with Spool(tmp_path, 1000) as spool:
        file = spool.file()
        file.write(b"abc")
        file.spill_if_needed()
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
            file.spill_if_needed()
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
        file.spill_if_needed()
        next(p for p in spool.directory.iterdir() if p.name != "lock").unlink()
        file.write(b"y")
        with pytest.raises(OSError, match="0 bytes, 10 were written"):
            file.spill_if_needed()


def test_a_wiped_file_is_not_read_as_a_short_segment(tmp_path: Path) -> None:
    with Spool(tmp_path, 0) as spool:
        file = spool.file()
        file.write(b"x" * 10)
        file.spill_if_needed()
        path = next(p for p in spool.directory.iterdir() if p.name != "lock")
        path.write_bytes(b"x" * 9)
        with pytest.raises(OSError, match="9 bytes, 10 were written"):
            file.reader()


SIZES = st.integers(0, 40) | st.just(300_000)


@property_examples()
@given(st.lists(st.tuples(st.integers(0, 3), SIZES, st.integers(0, 700_000))))
def test_a_disk_that_is_full_at_times_loses_no_byte(writes: list[tuple[int, int, int]]) -> None:
    """Files are written in turns while the disk shrinks and grows."""
    quota, random = Quota(), Random(1)
    with tempfile.TemporaryDirectory() as directory, Spool(Path(directory), -1, quota.disk()) as spool:
        files = [spool.file() for _ in range(4)]
        written = [b""] * 4
        for number, size, quota.size_bytes in writes:
            data = random.randbytes(size)
            files[number].write(data)
            files[number].spill_if_needed()
            written[number] += data
            assert spool.size_bytes == sum(map(len, written))
            assert sum(p.stat().st_size for p in spool.directory.iterdir()) <= spool.size_bytes
        for file, content in zip(files, written, strict=True):
            assert file.size_bytes == len(content)
            with file.reader() as reader:
                assert reader.read() == content
                for at in (len(content) // 2, len(content), 0):
                    assert reader.seek(at) == at
                    assert reader.read(7) == content[at : at + 7]
                assert reader.seek(0, 2) == len(content)
        for file in files:
            file.remove()
        assert spool.size_bytes == 0
        assert [path.name for path in spool.directory.iterdir()] == ["lock"]


def test_bytes_that_a_full_disk_did_not_take_are_written_once_there_is_space(tmp_path: Path) -> None:
    quota = Quota(5)
    with Spool(tmp_path, 0, quota.disk()) as spool:
        file = spool.file()
        file.write(b"0123456789")
        file.spill_if_needed()
        assert [p.read_bytes() for p in spool.directory.iterdir() if p.name != "lock"] == [b"01234"]
        quota.size_bytes = None
        file.spill_if_needed()
        assert [p.read_bytes() for p in spool.directory.iterdir() if p.name != "lock"] == [b"0123456789"]


def test_the_limit_follows_what_the_disk_has(tmp_path: Path) -> None:
    quota = Quota(1000)
    with Spool(tmp_path, 200, quota.disk()) as spool:
        assert spool.limit_bytes(10_000) == 900
        assert spool.limit_bytes(500) == 500
        file = spool.file()
        file.write(b"x" * 600)
        file.spill_if_needed()
        assert spool.limit_bytes(10_000) == 900, "what is ours is no less room"
        quota.size_bytes = 600  # a file of another process
        assert spool.limit_bytes(10_000) == 600


def test_a_disk_that_fails_is_an_error(tmp_path: Path) -> None:
    with Spool(tmp_path, 0) as spool:
        file = spool.file()
        file.write(b"x")
        (spool.directory / "00000001").mkdir()
        with pytest.raises(IsADirectoryError):
            file.spill_if_needed()
        (spool.directory / "00000001").rmdir()


@pytest.mark.parametrize("is_on_disk", [True, False])
def test_a_disk_that_is_read_only_by_now_keeps_nothing_from_being_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_on_disk: bool
) -> None:
    """Linux refuses there to unlink even what does not exist."""

    def refuse(path: Path, *, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    with Spool(tmp_path, 0 if is_on_disk else 1 << 20) as spool:
        file = spool.file()
        file.write(b"x" * 1000)
        file.spill_if_needed()
        monkeypatch.setattr(Path, "unlink", refuse)
        file.remove()
        file.remove()
        assert (spool.size_bytes, file.size_bytes) == (0, 0)
        monkeypatch.undo()


def test_nothing_is_left(tmp_path: Path) -> None:
    with Spool(tmp_path, 0) as spool:
        file = spool.file()
        file.write(b"x")
        file.spill_if_needed()
    assert list(tmp_path.iterdir()) == []


def test_directory_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    code = f"import os, pathlib, egress.segments.spool as s; s.Spool(pathlib.Path({str(tmp_path)!r}), 0); os._exit(9)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 9
    assert len(list(tmp_path.iterdir())) == 1
    with Spool(tmp_path, 0) as first, Spool(tmp_path, 0) as second:
        assert sorted(tmp_path.iterdir()) == sorted([first.directory, second.directory])


def test_a_directory_that_cannot_be_used_is_a_problem_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    rule = TopicRule(TopicPattern("t"), EgressTopicSettings())
    with pytest.raises(ConfigError, match=r"egress.spool_dir: cannot be used: .*file/spool"):
        open_spool(EgressSettings(topics=(rule,), spool_dir=tmp_path / "file" / "spool"))
