"""A damaged or missing segment is taken from another bucket's copy, or from a file: the Python API."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from formats.errors import MalformedKey
from formats.segment import Segment, parse_key
from infra.archive.segment_repair import RepairReport, SegmentCopy, SegmentRepair
from infra.runtime.lifecycle import Stop
from replicator.config import Config, S3Settings
from replicator.config.load import load
from replicator.services.archive import open_archive
from replicator.services.wiring import require_conditional_writes

SCHEME = "s3://"


class SegmentRepairs:
    """Repairs of the archive in `config`'s bucket. A context manager that closes its clients. For one thread."""

    def __init__(self, config: Config) -> None:
        self._config, self._stop, self._opened = config, Stop(), ExitStack()

    def __enter__(self) -> SegmentRepairs:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def segment(self, name: str) -> Segment:
        """`name`: its key, or REGION/TOPIC/PARTITION/LEVEL/START-END. Raises MalformedKey."""
        prefix = self._config.s3.prefix
        within = f"{SCHEME}{self._config.s3.bucket}/"
        key = name.removeprefix(within)
        try:
            return parse_key("", key)
        except MalformedKey:
            return parse_key(prefix, key)

    def repair(self, segment: Segment, source: str | Path, *, dry_run: bool = False) -> RepairReport:
        """See `SegmentRepair.repair`. `source`: a bucket, s3://BUCKET/PREFIX, a configuration (FILE.toml, the bucket of
        its `[s3]`), or a segment in a file. Raises ConfigError, too: when the bucket lets objects be overwritten."""
        archive = open_archive(self._config, self._stop, self._opened)
        copy = self._copy(source)
        if not dry_run:
            require_conditional_writes(self._config.s3, segment.source.region, self._stop)
        return SegmentRepair(archive=archive).repair(segment, copy, dry_run=dry_run)

    def _copy(self, source: str | Path) -> SegmentCopy:
        text = str(source)
        if text.startswith(SCHEME):
            bucket, _, prefix = text.removeprefix(SCHEME).partition("/")
            return self._in_bucket(replace(self._config.s3, bucket=bucket, prefix=prefix.rstrip("/")))
        if text.partition("#")[0].endswith(".toml"):
            return self._in_bucket(load(text).s3)
        if isinstance(source, Path) or "/" in text or Path(text).is_file():
            return SegmentCopy(Path(text), text)
        sync = self._config.sync
        if sync is not None and sync.destination.bucket == text:
            return self._in_bucket(sync.destination)
        return self._in_bucket(replace(self._config.s3, bucket=text))

    def _in_bucket(self, settings: S3Settings) -> SegmentCopy:
        there = open_archive(replace(self._config, s3=settings), self._stop, self._opened)
        return SegmentCopy(there, f"{SCHEME}{settings.bucket}/{settings.prefix}")
