"""A damaged or missing segment is taken from a copy: of another bucket, or a file.

    copy ── to a file ── decode: key, footer, every record ── of this topic? contradicts nothing stored? ── proven
    damaged object ── its bytes to `set-aside/…` ── removed
    proven file ── conditional put ── open again ── decode ── the same digest? ── quarantine ends

Rules:
1. A sound object is never replaced, whatever the copy holds. Sound: it decodes, to the last record, to what its key and
   footer say.
2. Nothing is written before the copy is proven. What is stored are the bytes that were decoded.
3. The copy is proven by its own digest and by its identity: region, topic, partition, level and offsets by its key and
   footer, the topic id by the claim of its archive path or by other stored segments; no record contradicts a stored
   one. A damaged object whose footer can still be read says which digest is right.
4. Order: prove, then set aside, then remove, then put. Stopped anywhere, the next one goes on from what it finds: the
   damaged object, no object, or the sound one.
5. A segment that is absent because others hold its offsets, or because a gap is recorded there, is not missing.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from pathlib import Path
from typing import BinaryIO

from formats.coverage import joined, uncovered
from formats.errors import CorruptSegment, ForeignSegment, SegmentNotFound, SegmentsDiffer, StoreUnavailable
from formats.footer import Digest, SegmentFooter
from formats.records.digest import Digester
from formats.registry import SegmentReader
from formats.segment import Segment
from infra.archive.archive import Archive
from infra.archive.upload import Uploader
from infra.contracts.storage import ObjectInfo
from infra.runtime.crash_points import Step, durable

CHUNK_BYTES = 1 << 20
NEIGHBOURS = 3  # stored segments that are asked for the topic id where the archive path is not claimed
ATTEMPTS = 3  # of an object that changes meanwhile


class SegmentState(Enum):
    SOUND = "sound"
    DAMAGED = "damaged"
    MISSING = "missing"
    COVERED = "covered"  # absent, and other segments hold its offsets
    GAP = "gap"  # absent, and a gap is recorded there


class RepairAction(Enum):
    NOTHING = "nothing"
    REPAIRED = "repaired"
    WOULD_REPAIR = "would repair"
    QUARANTINE_ENDED = "quarantine ended"
    WOULD_END_QUARANTINE = "would end quarantine"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairReport:
    segment: Segment
    state: SegmentState  # before the repair
    why: str  # empty for a sound or missing one
    action: RepairAction
    records: int = 0  # of the proven copy
    digest: str = ""  # of the proven copy; empty: no copy was needed
    set_aside: str = ""  # key of the damaged bytes


@dataclass(frozen=True, slots=True)
class _Spooled:
    """A copy in a file of this machine, as it is stored, which is read by path: each reader has a position of its
    own."""

    path: Path
    decrypted: Callable[[BinaryIO], BinaryIO]

    @property
    def size_bytes(self) -> int:
        return self.path.stat().st_size

    def reader(self) -> BinaryIO:
        """Its content."""
        return self.decrypted(self.path.open("rb"))


@dataclass(frozen=True, slots=True)
class _Stored:
    """What is at the segment's key. `footer` and `digest`: as far as they can be read."""

    state: SegmentState
    why: str = ""
    info: ObjectInfo | None = None
    footer: SegmentFooter | None = None
    digest: Digest | None = None


@dataclass(frozen=True, slots=True)
class _Proven:
    file: _Spooled
    footer: SegmentFooter
    digest: Digest


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentRepair:
    """Repairs segments of `archive`. For one thread. `spool_dir` needs room for one segment."""

    archive: Archive
    spool_dir: Path | None = None

    def repair(self, segment: Segment, copy: SegmentCopy, *, dry_run: bool = False) -> RepairReport:
        """Put the segment of `copy` in place of a damaged or missing one. With `dry_run`, only prove that it can be.

        Raises CorruptSegment for a copy that is not sound, ForeignSegment and SegmentsDiffer for one that is not of
        this archive, SegmentNotFound when there is no copy, and the stores' errors. After the first four nothing has
        changed.
        """
        stored = self._stored(segment)
        record = self.archive.control.quarantine.of(segment)
        applies = record is not None and stored.info is not None and record.is_of(stored.info.modified_at)
        if stored.state in (SegmentState.SOUND, SegmentState.COVERED, SegmentState.GAP) and not applies:
            if record is None:
                return _report(segment, stored, RepairAction.NOTHING, None)
            return self._end_quarantine(segment, stored, None, dry_run=dry_run)  # of an object that is gone
        with self._proven(segment, copy, stored) as proven:
            if stored.state is SegmentState.SOUND:
                return self._end_quarantine(segment, stored, proven, dry_run=dry_run)
            if dry_run:
                return _report(segment, stored, RepairAction.WOULD_REPAIR, proven)
            aside = self._remove_damaged(segment, stored)
            # prove, set aside, then put: the file is what was decoded
            uploader = replace(self._uploader, put=lambda segment: self._put_copy(segment, proven.file))
            uploader.upload(segment, proven.file, proven.footer)
            self._prove_stored(segment, proven)
            if record is not None:
                self.archive.control.quarantine.end(segment)
            return _report(segment, stored, RepairAction.REPAIRED, proven, aside)

    @property
    def _uploader(self) -> Uploader:
        # a record that only one of two segments has is what log compaction removes: it contradicts nothing
        return Uploader(self.archive, source_compacted=lambda _: True)

    # --- what is here ---

    def _stored(self, segment: Segment) -> _Stored:
        for _ in range(ATTEMPTS):
            info = self.archive.segments.stat(segment)
            if info is None:
                return self._absent(segment)
            footer: SegmentFooter | None = None
            try:
                with self.archive.open(segment) as reader:
                    footer = reader.footer
                    digest = _decoded(reader, str(segment))
            except SegmentNotFound:
                continue
            except CorruptSegment as error:
                return _Stored(SegmentState.DAMAGED, error.what, info, footer)
            return _Stored(SegmentState.SOUND, "", info, footer, digest)
        raise StoreUnavailable(f"{segment} comes and goes while it is read: run it again when nothing else repairs it")

    def _absent(self, segment: Segment) -> _Stored:
        """A gap explains an absence only as far as it goes: one that was accepted inside of the segment is in it."""
        listing = self.archive.listing(segment.source)
        quarantined = self.archive.control.quarantine.all(segment.source.region)
        usable = joined(i.segment.offsets for i in listing.infos if i.segment not in quarantined).runs
        lacking = uncovered(usable, segment.offsets)
        if not lacking:
            return _Stored(SegmentState.COVERED, "other stored segments hold its offsets")
        if any(uncovered(listing.recorded, offsets) for offsets in lacking):
            return _Stored(SegmentState.MISSING)
        return _Stored(SegmentState.GAP, f"offsets {', '.join(map(str, lacking))} are recorded as a gap")

    # --- the proof ---

    @contextmanager
    def _proven(self, segment: Segment, copy: SegmentCopy, stored: _Stored) -> Iterator[_Proven]:
        with tempfile.TemporaryDirectory(prefix="replicator-repair-", dir=self.spool_dir) as folder:
            file = _Spooled(Path(folder) / "segment", partial(self.archive.segments.decrypted, segment))
            with closing(copy.open_stored(segment)) as source, file.path.open("wb") as sink:
                shutil.copyfileobj(source, sink, CHUNK_BYTES)
            name = f"{segment} in {copy.name}"
            try:
                with closing(self.archive.format.open(file.reader(), segment)) as reader:
                    proven = _Proven(file, reader.footer, _decoded(reader, name))
            except CorruptSegment as error:
                raise CorruptSegment(
                    name, found=error.found, wanted=f"{error.wanted}. Nothing was changed: give another copy"
                ) from error
            self._check_identity(segment, proven, stored, name)
            yield proven

    def _check_identity(self, segment: Segment, proven: _Proven, stored: _Stored, name: str) -> None:
        topic_id = proven.footer.origin.topic_id
        others = self._others(segment)
        wanted, by = self._topic_id(segment, stored, others)
        if topic_id and wanted and topic_id != wanted:
            raise ForeignSegment(
                f"{name} is of topic id {topic_id}, and {by} is of {wanted}: the copy is of another topic of that "
                "name. Nothing was changed: give the copy of this archive"
            )
        if (right := _digest_of(stored)) is not None and right != proven.digest:
            raise SegmentsDiffer(
                f"stored {segment}",
                name,
                offset=segment.offsets.start,
                detail=f"the footer here says digest {right.whole}, and the copy has {proven.digest.whole}. "
                "Nothing was changed: find out which one is right; once the "
                "object here is gone, a copy is compared with no digest",
            )
        for other in others:
            if other.offsets.overlaps(segment.offsets):
                try:
                    self._uploader.check_agreement(other, segment, proven.file, proven.footer)
                except (CorruptSegment, SegmentNotFound):
                    continue  # damaged itself, or merged meanwhile: it proves nothing

    def _others(self, segment: Segment) -> Collection[Segment]:
        """Other stored segments of the partition, the nearest first."""
        stored = (info.segment for info in self.archive.segments.list(segment.source))
        start = segment.offsets.start
        return sorted((one for one in stored if one != segment), key=lambda one: abs(one.offsets.start - start))

    def _topic_id(self, segment: Segment, stored: _Stored, others: Collection[Segment]) -> tuple[str, str]:
        """The topic id that the archive path is of, and by what that is known; empty when nothing says so."""
        source = segment.source
        claim = self.archive.control.claims.of(source.region, source.path)
        if claim is not None and claim.topic_id:
            return claim.topic_id, f"the claim of {source.region}/{source.path}"
        if stored.footer is not None and stored.footer.origin.topic_id:
            return stored.footer.origin.topic_id, "the damaged object's footer"
        for other in list(others)[:NEIGHBOURS]:
            try:
                found = self.archive.footer(other).origin.topic_id
            except (CorruptSegment, SegmentNotFound):
                continue
            if found:
                return found, f"stored {other}"
        return "", ""

    # --- the steps ---

    def _remove_damaged(self, segment: Segment, stored: _Stored) -> str:
        """Keep the damaged bytes at a key of their own, then remove the object. Returns that key; empty when there is
        none."""
        if stored.info is None:
            return ""
        with tempfile.TemporaryFile(dir=self.spool_dir) as file:
            digest = hashlib.sha256()
            with closing(self.archive.segments.open_stored(segment)) as source:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    file.write(chunk)
            size_bytes = file.tell()
            file.seek(0)
            aside = self.archive.control.quarantine.set_aside(segment, digest.hexdigest(), file, size_bytes)
        now = self.archive.segments.stat(segment)
        if now is None or (now.etag, now.modified_at) != (stored.info.etag, stored.info.modified_at):
            raise StoreUnavailable(
                f"{segment} was changed while it was repaired: run it again to see what is there now"
            )
        with durable(Step.REMOVE_DAMAGED):  # set aside, then remove: its bytes are never lost
            self.archive.segments.delete_many([segment])
        return aside

    def _put_copy(self, segment: Segment, file: _Spooled) -> None:
        """The copy's own bytes, also where they are encrypted: both stay equal, as `sync` compares them."""
        with file.path.open("rb") as body:
            self.archive.segments.store_copy(segment, body, file.size_bytes)

    def _prove_stored(self, segment: Segment, proven: _Proven) -> None:
        with self.archive.open(segment) as reader:
            found = _decoded(reader, str(segment))
        if found != proven.digest:
            raise CorruptSegment(str(segment), found=f"records with digest {found.whole}", wanted=proven.digest.whole)

    def _end_quarantine(
        self, segment: Segment, stored: _Stored, proven: _Proven | None, *, dry_run: bool
    ) -> RepairReport:
        if dry_run:
            return _report(segment, stored, RepairAction.WOULD_END_QUARANTINE, proven)
        self.archive.control.quarantine.end(segment)
        return _report(segment, stored, RepairAction.QUARANTINE_ENDED, proven)


class SegmentCopy:
    """Where the copy of a segment is: another archive, or a file."""

    def __init__(self, where: Archive | Path, name: str) -> None:
        """`name`: of the bucket or file, for messages."""
        self.where, self.name = where, name

    def open_stored(self, segment: Segment) -> BinaryIO:
        """The bytes as they are stored; the caller closes it. Raises SegmentNotFound, and the store's errors."""
        try:
            if isinstance(self.where, Path):
                return self.where.open("rb")
            return self.where.segments.open_stored(segment)
        except (SegmentNotFound, FileNotFoundError) as error:
            raise SegmentNotFound(f"{segment} in {self.name}: nothing was changed, give another copy") from error


def _decoded(reader: SegmentReader, name: str) -> Digest:
    """The digest of all records. Raises CorruptSegment when they are not what the footer says."""
    digester, count = Digester(), 0
    for batch in reader.batches():
        count += batch.num_rows
        digester.update(batch)
        del batch
    found, wanted = digester.digest(), reader.footer.digest
    if count != reader.footer.count:
        raise CorruptSegment(name, found=f"{count} records", wanted=reader.footer.count)
    if wanted is not None and found != wanted:
        raise CorruptSegment(name, found=f"records with digest {found.whole}", wanted=wanted.whole)
    return found


def _digest_of(stored: _Stored) -> Digest | None:
    """What the records should be: by the footer of a damaged object, or by those of a sound one."""
    return stored.digest or (stored.footer.digest if stored.footer is not None else None)


def _report(
    segment: Segment, stored: _Stored, action: RepairAction, proven: _Proven | None, aside: str = ""
) -> RepairReport:
    return RepairReport(
        segment=segment,
        state=stored.state,
        why=stored.why,
        action=action,
        records=proven.footer.count if proven is not None else 0,
        digest=proven.digest.whole if proven is not None else "",
        set_aside=aside,
    )
