"""Identifies a process by pid and start time: a pid alone may be reused by another process."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessIdentity:
    """A pid and the start time of its process, as the system prints it (compared, never computed with)."""

    pid: int
    started: str

    def __post_init__(self) -> None:
        if self.pid <= 1:
            raise ValueError(f"pid {self.pid} is not a process of ours")
        if not self.started:
            raise ValueError("started must not be empty")

    def alive(self) -> bool:
        """Whether exactly this process runs. A dead process that was not waited for yet (a zombie) does not."""
        return process_start(self.pid) == self.started


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of the process that has `pid` now; None if there is none."""
    started = process_start(pid)
    return ProcessIdentity(pid=pid, started=started) if started else None


def process_start(pid: int) -> str:
    """Start time of the process `pid`; empty if there is none."""
    return _start_from_proc(pid) if Path("/proc/self/stat").exists() else _start_from_ps(pid)


def _start_from_proc(pid: int) -> str:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
    fields = stat.rpartition(")")[2].split()  # the process name before it may contain any character
    state, start_ticks = fields[0], fields[19]
    return "" if state in "ZXx" else f"{boot}:{start_ticks}"  # ticks since boot are unique only with the boot id


def _start_from_ps(pid: int) -> str:
    done = subprocess.run(
        ["ps", "-o", "state=,lstart=", "-p", str(pid)],  # noqa: S607 - part of every Unix, its folder differs
        capture_output=True,
        text=True,
        check=False,
        env={"LC_ALL": "C", "PATH": "/bin:/usr/bin"},
    )
    state, _, started = done.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()
