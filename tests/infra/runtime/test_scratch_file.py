from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from infra.runtime.scratch_file import ScratchFile


def test_what_was_appended_is_read() -> None:
    with closing(ScratchFile()) as file:
        places = [(file.append(data), data) for data in (b"one", b"", b"three" * 1000)]
        assert [at for at, _ in places] == [0, 3, 3]
        assert file.size_bytes == 5003
        assert all(file.read(at, len(data)) == data for at, data in reversed(places))
        assert file.read(1, 4) == b"neth"


def test_the_folder_stays_empty(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path)
    file.append(b"x")
    assert list(tmp_path.iterdir()) == []
    file.close()
    file.close()


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    file = ScratchFile(tmp_path / "nowhere")
    with pytest.raises(OSError, match="nowhere"):
        file.append(b"x")
