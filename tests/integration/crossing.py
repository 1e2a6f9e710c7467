"""What crosses between Spark's tasks and the driver, which is this process and the Java below it.

    tasks ──result──> driver      bytes of each, by Spark's own listener
    driver ──row──> tasks         seen as memory: all rows are held at once
    bucket ──segment──> driver    bytes of every segment that this process fetched itself

Only plans and outcomes may cross: a fraction of what the segments hold, however many there are.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import re
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from botocore.httpsession import URLLib3Session

RESULT_BYTES = 16 << 10  # an outcome, and Spark's own accounts of a task: 2 to 4 kB were seen
SAMPLE_SECONDS = 0.05
SEGMENT = re.compile(r"/\d{20}-\d{20}($|\?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A task that was carried out to its end."""

    executor: str
    at: float  # seconds since the epoch
    result_bytes: int
    other_bytes: int  # read and written by Spark itself: inputs, outputs, shuffles


@dataclass(slots=True)
class Crossing:
    """`properties` go to Spark; `watched` is around the run; then the assertion says what crossed."""

    folder: Path
    fetched_bytes: int = 0  # of segments, by this process
    grown_bytes: int = 0  # the most memory that this process held, above what it held before
    _java: list[tuple[float, int]] = field(default_factory=list)  # when, resident bytes

    @property
    def properties(self) -> Mapping[str, str]:
        self.folder.mkdir(exist_ok=True)
        return {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self.folder.absolute().as_uri(),
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.compress": "false",
        }

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Nothing else may work in this process meanwhile."""
        ended = threading.Event()
        sampler = threading.Thread(target=self._sample_java, args=(ended,))
        before = _fresh_peak()
        sampler.start()
        try:
            with patch.object(URLLib3Session, "send", self._counting(URLLib3Session.send)):
                yield
        finally:
            ended.set()
            sampler.join()
            self.grown_bytes = _memory("VmHWM") - before

    def finished(self) -> list[Finished]:
        """Of every application that wrote its events, which it has when it has ended."""
        return [
            task
            for file in sorted(self.folder.iterdir())
            for line in file.read_text(encoding="utf-8").splitlines()
            if (task := _finished(json.loads(line))) is not None
        ]

    def java_grown_bytes(self, since: float) -> int:
        """From the last sample before `since` to the most that was seen."""
        before = [size for at, size in self._java if at <= since] or [size for _, size in self._java[:1]]
        return max(size for _, size in self._java) - before[-1]

    def assert_only_plans(
        self, segment_bytes: Collection[int], *, executors: int = 1, planning: Crossing | None = None
    ) -> None:
        """`segment_bytes`: sizes of the stored segments that were worked on; `planning`: of what making the same plans
        takes by itself, since it reads footers."""
        total, tasks = sum(segment_bytes), self.finished()
        assert min(segment_bytes) > 8 * RESULT_BYTES, "segments so small that one would go unnoticed"
        assert len({task.executor for task in tasks}) >= executors
        results = sorted(task.result_bytes for task in tasks)
        assert results[-1] <= RESULT_BYTES, f"a task returned {results[-1]} bytes"
        assert sum(task.other_bytes for task in tasks) == 0, "Spark moved data by itself"
        fetched = self.fetched_bytes - (planning.fetched_bytes if planning else 0)
        assert fetched <= total // 8, f"the driver fetched {fetched} of {total} bytes itself"
        grown = self.grown_bytes - (planning.grown_bytes if planning else 0)
        assert grown <= total // 2, f"the driver grew by {grown}, segments hold {total} bytes"
        java = self.java_grown_bytes(min(task.at for task in tasks))
        assert java <= total // 2, f"the driver's Java grew by {java}, segments hold {total} bytes"

    def _counting(self, send: Any) -> Any:
        def counting(session: URLLib3Session, request: Any) -> Any:
            answer = send(session, request)
            if request.method == "GET" and SEGMENT.search(request.url):
                self.fetched_bytes += int(answer.headers.get("Content-Length", 0))
            return answer

        return counting

    def _sample_java(self, ended: threading.Event) -> None:
        while not ended.wait(SAMPLE_SECONDS):
            size = max((_memory("VmRSS", pid) for pid in _javas()), default=0)
            if size:
                self._java.append((time.time(), size))


def _finished(event: Mapping[str, Any]) -> Finished | None:
    if event["Event"] != "SparkListenerTaskEnd" or event["Task End Reason"]["Reason"] != "Success":
        return None
    metrics = event["Task Metrics"]
    reading, writing = metrics["Shuffle Read Metrics"], metrics["Shuffle Write Metrics"]
    return Finished(
        executor=event["Task Info"]["Executor ID"],
        at=event["Task Info"]["Finish Time"] / 1000,
        result_bytes=metrics["Result Size"],
        other_bytes=sum(
            (
                metrics["Input Metrics"]["Bytes Read"],
                metrics["Output Metrics"]["Bytes Written"],
                reading["Remote Bytes Read"],
                reading["Local Bytes Read"],
                writing["Shuffle Bytes Written"],
            )
        ),
    )


# --- memory of processes, as Linux counts it ---


def _fresh_peak() -> int:
    """What this process holds now; its peak is counted from here."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)  # else what was freed before would hide what is taken now
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return _memory("VmRSS")


def _memory(name: str, pid: int | str = "self") -> int:
    """Bytes; 0 when it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) << 10
    return 0


def _javas() -> Iterator[int]:
    """Children of this process that are Spark's."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
            if int(parent) == os.getpid() and b"SparkSubmit" in (process / "cmdline").read_bytes():
                yield int(process.name)
