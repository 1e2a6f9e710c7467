"""Files that a command writes when its work is done: that they can be written is known before."""

from __future__ import annotations

import os
from errno import EISDIR
from pathlib import Path
from tempfile import TemporaryFile

import typer


def require_writable(option: str, path: Path | None, *, replaced: bool = False) -> None:
    """Check the file that `option` names, and change nothing. `replaced`: it is written beside, and renamed. Raises
    typer.BadParameter."""
    if path is None:
        return
    try:
        if path.is_dir():
            raise IsADirectoryError(EISDIR, os.strerror(EISDIR))
        if replaced or not path.exists():
            with TemporaryFile(dir=path.parent):
                pass
        elif path.is_file():  # a pipe's reader would see its end
            path.open("ab").close()
    except OSError as error:
        remedy = "nothing was done; name another file, or make its folder one that this user may write"
        raise typer.BadParameter(f"{option} {path}: cannot be written: {error.strerror or error}; {remedy}") from error
