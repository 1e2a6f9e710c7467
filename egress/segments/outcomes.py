"""What becomes of a segment that was sealed, or could not be."""

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
    new: bool  # False: an equal one stood there


@dataclass(frozen=True, slots=True)
class SpoolLost:
    """What was held of the segment that begins at `start` is gone."""

    source: SourcePartition
    start: int
    reason: str


@dataclass(frozen=True, slots=True)
class UploadConflict:
    """The store holds something that contradicts this segment, under its key or beside it."""

    source: SourcePartition
    offsets: OffsetRange
    error: DataError | TargetError


@dataclass(frozen=True, slots=True)
class TopicRecreated:
    """The topic is gone, or was created again, since the segment was opened. It was not stored: nobody knows of which
    life its records are."""

    source: SourcePartition
    offsets: OffsetRange


@dataclass(frozen=True, slots=True)
class UploadFailed:
    """The store, or who was asked about what it holds, gave no answer until the retries ended: read it again."""

    source: SourcePartition
    offsets: OffsetRange
    error: TransientError


UploadOutcome = SegmentStored | SpoolLost | UploadConflict | TopicRecreated | UploadFailed
