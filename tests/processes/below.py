"""Processes by a mark in their environment, which whatever they start inherits: who works for whom, who was left."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    pid: int
    parent: int
    command: str

    @property
    def is_of_spark(self) -> bool:
        """A Python of Spark's: a worker, or the daemon whose forks they are."""
        return "pyspark.daemon" in self.command


def marked(mark: str) -> list[Found]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if mark.encode() not in (process / "environ").read_bytes():
                continue
            parent = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            command = (process / "cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:  # it has ended, or is somebody else's
            continue
        found.append(Found(pid=int(process.name), parent=int(parent), command=command))
    return found


def spark_workers(mark: str) -> list[Found]:
    """Those that carry out plans, if any is there."""
    pythons = {one.pid: one for one in marked(mark) if one.is_of_spark}
    return [one for one in pythons.values() if one.parent in pythons]
