"""Outcomes of a segment: stored, lost, rejected or failed."""

from __future__ import annotations

from dataclasses import dataclass

from egress.partition import Seal
from formats.errors import DataError, TargetError, TransientError
from formats.footer import SegmentFooter
from formats.segment import OffsetRange, SourcePartition


@dataclass(frozen=True, slots=True)
class SegmentStored:
    source: SourcePartition
    seal: Seal
    footer: SegmentFooter
    stored_bytes: int
    seconds: float  # from sealing to stored
    new: bool  # False: an equal segment was already stored


@dataclass(frozen=True, slots=True)
class SpoolLost:
    """The encoded records of the segment that begins at `start` are lost."""

    source: SourcePartition
    start: int
    reason: str


@dataclass(frozen=True, slots=True)
class UploadConflict:
    """The store holds an object that contradicts this segment: under its key, or a segment that overlaps it."""

    source: SourcePartition
    offsets: OffsetRange
    error: DataError | TargetError


@dataclass(frozen=True, slots=True)
class TopicRecreated:
    """The topic was deleted, or created again, after the segment was opened. The segment was not stored: it is unknown
    which incarnation its records are of."""

    source: SourcePartition
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """The upload failed, or the check of what the store holds, and the retries are used up: read the records again."""

    source: SourcePartition
    offsets: OffsetRange
    error: TransientError


UploadOutcome = SegmentStored | SpoolLost | UploadConflict | TopicRecreated | UploadFailed
