"""Where logs of a source forked: they were truncated below archived offsets."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass

from formats.control.fork import LogFork, decode_fork, encode_fork
from formats.control.keys import deeper_fork_key, fork_key, forks_prefix
from formats.errors import SegmentExists
from formats.segment import SourcePartition
from infra.archive.control_objects import few_sources, naming, read_object, sources_of
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable


@dataclass(frozen=True, slots=True)
class ForkStore:
    """As thread safe as `objects`, whose errors it raises; MalformedEvent for an object that cannot be decoded."""

    objects: ObjectStore
    prefix: str

    def few_sources(self, region: str, *, most: int) -> frozenset[SourcePartition] | None:
        """As `sources` of all archive paths; None when the listing has `most` objects or more."""
        return few_sources(self.objects, self.prefix, region, "forks", most)

    def sources(self, region: str, path: str | None = None) -> Sequence[SourcePartition]:
        """Partitions of `region`, or of one archive path in it, with a recorded fork."""
        return sources_of(self.objects, self.prefix, region, "forks", path)

    def of(self, source: SourcePartition) -> Sequence[LogFork]:
        """In order of `next_offset`. One listing, and one request for each fork: normally there is none."""
        return [self._fork(source, item.key) for item in self.objects.list(forks_prefix(self.prefix, source))]

    def record(self, fork: LogFork) -> None:
        """Idempotent: a fork at the same offset keeps its first record. A fork that contests more offsets gets a second
        record, since that is new."""
        key, data = fork_key(self.prefix, fork), encode_fork(fork)
        with durable(Step.RECORD_FORK):
            try:
                self.objects.put_new(key, io.BytesIO(data), len(data))
            except SegmentExists:
                if fork.contested.start < self._fork(fork.source, key).contested.start:
                    with contextlib.suppress(SegmentExists):
                        self.objects.put_new(deeper_fork_key(self.prefix, fork), io.BytesIO(data), len(data))

    def _fork(self, source: SourcePartition, key: str) -> LogFork:
        with naming(key):
            return decode_fork(source, read_object(self.objects, key))
