"""Builds the compiled objects of infra/kafka/native/: `make native`. The same sources give the same bytes.

The compiler is a wheel as well, one that compiles for any target, and is pinned here; it is installed into .zig/ when
it is missing, since nothing but this needs it.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = ROOT / "infra" / "kafka" / "native"
COMPILER = "ziglang==0.17.1"
TARGETS = {"linux-x86_64": "x86_64-linux-gnu.2.17"}
OPTIONS = (
    *("-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-fno-sanitize=all"),
    *("-shared", "-fPIC", "-g0", "-Wl,--strip-all"),
)


def sources() -> list[Path]:
    return sorted(SOURCES.glob("*.c"))


def digest(source: Path) -> str:
    """Of a source with the headers, which is in the object built from it."""
    parts = [source, *sorted(SOURCES.glob("*.h"))]
    return hashlib.sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()


def built(source: Path, target: str) -> Path:
    return SOURCES / f"{source.stem}.{target}.so"


def build(into: Path) -> Iterator[Path]:
    for source in sources():
        for target, triple in TARGETS.items():
            path = into / built(source, target).name
            command = [str(_python()), "-m", "ziglang", "cc", "-target", triple, *OPTIONS]
            command += [f'-DSOURCES="{digest(source)}"', "-o", str(path), str(source)]
            subprocess.run(command, check=True)
            path.chmod(0o644)
            yield path


def _python() -> Path:
    home = ROOT / ".zig"
    python = home / "bin" / "python"
    if not python.exists():
        venv.create(home, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", COMPILER]
    subprocess.run(install, check=True)
    return python


if __name__ == "__main__":
    for path in build(SOURCES):
        sys.stdout.write(f"{path.relative_to(ROOT)}\n")
