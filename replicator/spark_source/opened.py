"""The archive as a Spark process opens it, and its warnings there."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from formats.segment import OffsetRange, SourcePartition
from infra.archive.archive import Archive
from infra.runtime import log_fields
from infra.runtime.lifecycle import Stop
from infra.runtime.logs import TextFormatter
from replicator.config import Config
from replicator.services.archive import open_archive

log = logging.getLogger(__name__)


@contextmanager
def opened(config: Config) -> Iterator[Archive]:
    with ExitStack() as closing:
        yield open_archive(config, Stop(), closing)


def log_gaps(event: str, source: SourcePartition, gaps: Sequence[OffsetRange]) -> None:
    """One warning for the gaps of a source partition, if there are any."""
    if gaps:
        fields = {
            log_fields.REGION: source.region,
            log_fields.TOPIC: source.path,
            log_fields.PARTITION: source.partition,
        }
        offsets = {log_fields.COUNT: len(gaps), log_fields.START: gaps[0].start, log_fields.END: gaps[-1].end}
        _format_warnings()
        log.warning(event, extra=fields | offsets)


def _format_warnings() -> None:
    """Format warnings with their fields: logging is not set up in Spark's Python processes."""
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(TextFormatter())
