"""Checks as Spark tasks that segments have their copies before they expire: some segments each. A task returns why each
of its segments may not be deleted."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass

from formats.segment import Segment, parse_key
from infra.archive.segments import SegmentStore
from infra.runtime.lifecycle import Stop
from replicator.config import Config
from replicator.services.replicas import replica_check
from replicator.services.wiring import ARCHIVE_THREADS, archive_objects


@dataclass(frozen=True, slots=True)
class CopyCheckTask:
    """A `SparkTask`. It is pickled together with the configuration, which includes credentials."""

    config: Config

    def row(self, item: Sequence[Segment]) -> str:
        return json.dumps([str(segment) for segment in item])

    def __call__(self, row: str) -> str:
        segments, stop = [parse_key("", key) for key in json.loads(row)], Stop()
        with ExitStack() as opened:
            store = SegmentStore(archive_objects(self.config, stop, opened), self.config.s3.prefix)
            check = replica_check(self.config, store, stop, opened)
            with ThreadPoolExecutor(ARCHIVE_THREADS, "copies") as pool:
                return json.dumps(list(check.each_uncopied(segments, pool)))

    def outcome(self, answer: str) -> Sequence[str]:
        return list(json.loads(answer))

    def failed(self, item: Sequence[Segment], reason: str) -> Sequence[str]:
        return [f"whether it has its copy is not known: {reason}"] * len(item)
