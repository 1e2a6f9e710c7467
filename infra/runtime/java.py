"""Finds the Java installation that runs the brokers and PySpark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from formats.errors import ReplicatorError

if TYPE_CHECKING:
    from collections.abc import Mapping

LOWEST_VERSION = 17
NEEDED_MODULE = "jdk.incubator.vector"
ANSWER_SECONDS = 60.0
REMEDY = (
    f"needed: Java {LOWEST_VERSION} or newer with the module {NEEDED_MODULE}.\n"
    "install it: Debian and Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17\n"
    "or point JAVA_HOME at one."
)


class JavaMissing(ReplicatorError):
    """There is no Java, or no suitable one. The message says what to install."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A suitable Java. `version`: as it reports it, such as 17.0.15."""

    executable: Path
    version: str

    @property
    def home(self) -> Path:
        """The value of JAVA_HOME for this Java."""
        return self.executable.resolve().parent.parent


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """The Java of JAVA_HOME, else the first on PATH. Raises JavaMissing if it is absent or not suitable.

    An unsuitable Java in JAVA_HOME is not ignored: the user's choice is used or rejected.
    """
    environ = os.environ if environ is None else environ
    executable, where = _locate(environ)
    return Java(executable=executable, version=_fit_version(executable, where, environ))


def _locate(environ: Mapping[str, str]) -> tuple[Path, str]:
    if home := environ.get("JAVA_HOME"):
        executable = Path(home) / "bin" / "java"
        if not os.access(executable, os.X_OK):
            raise JavaMissing(f"JAVA_HOME is {home}, but there is no {executable} to run.\n{REMEDY}")
        return executable, f"{executable} (from JAVA_HOME)"
    found = shutil.which("java", path=environ.get("PATH", ""))
    if found is None:
        raise JavaMissing(f"no Java: JAVA_HOME is not set and there is no java on PATH.\n{REMEDY}")
    return Path(found), f"{found} (from PATH)"


def _fit_version(executable: Path, where: str, environ: Mapping[str, str]) -> str:
    answer = _ask(executable, where, environ, "-version")
    match = re.search(r'version "([^"]+)"', answer)
    if match is None:
        raise JavaMissing(f"found {where}, which does not report its version: {answer.strip()[:300]}\n{REMEDY}")
    version = match.group(1)
    if _feature(version) < LOWEST_VERSION:
        raise JavaMissing(f"found {where}, which is Java {version}: too old.\n{REMEDY}")
    modules = _ask(executable, where, environ, "--list-modules")
    if not re.search(rf"^{re.escape(NEEDED_MODULE)}(@|$)", modules, re.MULTILINE):
        raise JavaMissing(
            f"found {where}, which is Java {version} without the module {NEEDED_MODULE}: PySpark needs it.\n{REMEDY}"
        )
    return version


def _feature(version: str) -> int:
    """17 for "17.0.15", 8 for "1.8.0_392", 24 for "24-ea"; 0 for any other form."""
    match = re.match(r"(?:1\.)?(\d+)", version)
    return int(match.group(1)) if match else 0


def _ask(executable: Path, where: str, environ: Mapping[str, str], option: str) -> str:
    try:
        done = subprocess.run(
            [str(executable), "-XX:-UsePerfData", option],  # else a killed process leaves a file in the temp folder
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=ANSWER_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaMissing(f"found {where}, which cannot be run: {error}\n{REMEDY}") from error
    if done.returncode != 0:
        output = (done.stderr + done.stdout).strip()[:300]
        raise JavaMissing(f"found {where}: `java {option}` ended with {done.returncode}: {output}\n{REMEDY}")
    return done.stdout + done.stderr


def main() -> int:
    """`python -m infra.runtime.java`: prints nothing when there is a suitable Java, else a message to stderr."""
    try:
        find_java()
    except JavaMissing as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
