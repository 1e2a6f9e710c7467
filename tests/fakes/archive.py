"""An archive around a segment store of a test."""

from __future__ import annotations

from formats.registry import SegmentFormat
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.archive.segments import SegmentStore


def archive_of(store: SegmentStore, segment_format: SegmentFormat) -> Archive:
    return Archive(store, ControlStore(store.objects, store.prefix), segment_format)
