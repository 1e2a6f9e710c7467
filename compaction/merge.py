"""Write one merged segment, streaming: inputs in order, a row group at a time, to a file, to the final key, verified.

    input ──decode, check──┐
    input ──decode, check──┼── row groups ── file ── conditional put ── open again ── decode ── digests equal?
    input ──decode, check──┘

The digests of the inputs must combine to the digest of the written records before the segment is stored, and must equal
those of the stored object afterwards. Nothing is deleted here.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from compaction.planner import MergePlan
from compaction.proof import digests_of
from formats.coverage import SegmentSlice
from formats.errors import CorruptSegment, SegmentsDiffer
from formats.footer import Digest, SegmentFooter, SegmentOrigin
from formats.records.digest import Digester, combine
from formats.records.statistics import after
from formats.registry import SegmentReader, SegmentWriter
from formats.segment import Segment
from infra.archive.archive import Archive
from infra.archive.upload import Uploader


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    footer: SegmentFooter
    stored_bytes: int
    is_new: bool  # False: another merge stored the same segment before


class BadSegment(Exception):
    """A stored segment does not match its key or footer. Plans that need it fail; others can be executed."""

    def __init__(self, segment: Segment, reason: str) -> None:
        super().__init__(reason)
        self.segment, self.reason = segment, reason


@dataclass(frozen=True, slots=True, kw_only=True)
class Merger:
    """Safe to call from several threads. Writes in the archive's format."""

    archive: Archive
    uploader: Uploader
    row_group_bytes: int
    writer: str  # name and version of this program
    created_by: str = ""  # the operator's name for the installation
    spool_dir: Path | None = None  # needs room for one merged segment per running merge

    def merge(self, plan: MergePlan) -> Merged:
        """Store `plan.output`, or find it stored, and prove it. Raises BadSegment for an input or for the object at the
        output's key; SegmentNotFound when another process has merged and removed an input: plan again; SegmentsDiffer
        when two incarnations or two merges contradict each other; and the store's errors."""
        with tempfile.TemporaryFile(dir=self.spool_dir) as file:  # unnamed: a killed process leaves nothing behind
            footer, wanted = self._write(plan, file)
            file.flush()
            encoded = _File(file.fileno(), file.tell())
            try:
                is_new = self.uploader.upload(plan.output, encoded, footer)
                # store, then prove: decode what readers will get, from the store and not from the file
                return self._prove(plan, wanted, encoded.size_bytes, is_new=is_new)
            except CorruptSegment as error:  # it is reported, not removed: nothing is deleted without a proof
                raise BadSegment(plan.output, error.what) from error

    def _prove(self, plan: MergePlan, wanted: list[Digest], size_bytes: int, *, is_new: bool) -> Merged:
        with self.archive.open(plan.output) as stored:
            found = digests_of(stored.batches(), [one.offsets for one in plan.inputs])
            if is_new and found != wanted:
                raise CorruptSegment(
                    str(plan.output),
                    found=f"records with digest {combine(*found).whole}",
                    wanted=f"{combine(*wanted).whole}, that of its inputs, which stay",
                )
            return Merged(footer=stored.footer, stored_bytes=size_bytes, is_new=is_new)

    def _write(self, plan: MergePlan, sink: BinaryIO) -> tuple[SegmentFooter, list[Digest]]:
        writer = self.archive.format.create(sink)
        try:
            origins: list[SegmentOrigin] = []
            digests: list[Digest] = []
            rows = _RowGroups(writer, self.row_group_bytes)
            for segment_slice in plan.inputs:
                with self._open(segment_slice.segment) as reader:
                    origins.append(reader.footer.origin)
                    try:
                        digests.append(_copy(reader, segment_slice, rows))
                    except CorruptSegment as error:
                        raise BadSegment(segment_slice.segment, error.what) from error
            rows.end()
            footer = writer.close(plan.output, merged_origin(plan, origins, self.writer, self.created_by))
        except BaseException:
            writer.abort()
            raise
        if footer.digest != combine(*digests):
            raise CorruptSegment(
                f"{plan.output} (not stored)",
                found=f"records with digest {footer.digest.whole if footer.digest else None}",
                wanted=f"{combine(*digests).whole}, that of its inputs",
            )
        return footer, digests

    def _open(self, segment: Segment) -> AbstractContextManager[SegmentReader]:
        try:
            return self.archive.open(segment)
        except CorruptSegment as error:
            raise BadSegment(segment, error.what) from error


def _copy(reader: SegmentReader, segment_slice: SegmentSlice, rows: _RowGroups) -> Digest:
    """Copy a slice into `rows`. Returns the digest of its records, verified against the input's footer."""
    footer = reader.footer
    if footer.digest is not None and segment_slice.offsets == footer.offsets:
        for batch in reader.batches():
            rows.add(batch)
            del batch
        return footer.digest  # the reader checked every row group against it
    skipped, used = Digester(), Digester()
    for batch in reader.batches():
        rest = after(batch, segment_slice.offsets.start)
        if rest.num_rows < batch.num_rows:
            skipped.update(batch.slice(0, batch.num_rows - rest.num_rows))
        if rest.num_rows:
            used.update(rest)
            rows.add(rest)
    if footer.digest is not None and combine(skipped.digest(), used.digest()) != footer.digest:
        raise CorruptSegment(
            str(footer.segment),
            found=f"records with digest {combine(skipped.digest(), used.digest()).whole}",
            wanted=footer.digest.whole,
        )
    return used.digest()


class _RowGroups:
    """Gathers batches until they make a row group."""

    def __init__(self, writer: SegmentWriter, limit_bytes: int) -> None:
        self._writer, self._limit_bytes = writer, limit_bytes
        self._batches: list[pa.RecordBatch] = []
        self._bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        if self._batches and self._bytes + batch.nbytes > self._limit_bytes:
            self.end()
        self._batches.append(batch)
        self._bytes += batch.nbytes

    def end(self) -> None:
        if self._batches:
            self._writer.write(self._batches)
        self._batches, self._bytes = [], 0


def merged_origin(plan: MergePlan, origins: list[SegmentOrigin], writer: str, created_by: str = "") -> SegmentOrigin:
    """The origin for all records. Raises SegmentsDiffer when they are of two incarnations of a topic."""
    ids = {o.topic_id for o in origins if o.topic_id}
    if len(ids) > 1:
        first, second = (
            next(str(p.segment) for p, o in zip(plan.inputs, origins, strict=True) if o.topic_id == one)
            for one in sorted(ids)[:2]
        )
        raise SegmentsDiffer(
            first,
            second,
            offset=plan.output.offsets.start,
            detail=f"their topic ids are {' and '.join(sorted(ids))}: two incarnations of a topic in one archive path. "
            "Move the segments of one of them away",
        )
    last = origins[-1]
    return SegmentOrigin(
        topic_id=next(iter(ids), ""),
        cluster_id=last.cluster_id,
        source_partition_count=_latest(o.source_partition_count for o in origins),
        isolation_level=next((o.isolation_level for o in origins if o.isolation_level == "read_uncommitted"), "")
        or last.isolation_level,
        # of the last record: after an accepted fork, epochs may be lower than before
        last_leader_epoch=next((e for o in reversed(origins) if (e := o.last_leader_epoch) is not None), None),
        catalog_generation=_latest(o.catalog_generation for o in origins),
        created_at=max(o.created_at for o in origins),
        writer=writer,
        role="compact",
        created_by=created_by,
        fidelity=next((o.fidelity for o in origins if o.fidelity != "exact"), "exact"),
    )


def _latest(values: Iterator[int | None]) -> int | None:
    return max((v for v in values if v is not None), default=None)


@dataclass(frozen=True, slots=True)
class _File:
    descriptor: int
    size_bytes: int

    def reader(self) -> BinaryIO:
        """Only one reader at a time: all of them share one file position."""
        reader = os.fdopen(os.dup(self.descriptor), "rb")
        reader.seek(0)
        return reader
