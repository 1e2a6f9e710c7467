"""The offset map's topic: pages are read as they are written, and kept on disk.

A page is written again with each transaction until it is full, so of the versions that one fetch returns only the last
is decoded, in the order of these: as after a compaction.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from confluent_kafka import Message

from formats.errors import MalformedEvent
from formats.messages.map_key import MapKey
from infra.archive.map_pages import PagedMaps
from infra.contracts.internal_topics import PartitionPages
from infra.kafka.internal_topics.table_log import TableLog, malformed_fields
from infra.runtime.log_fields import REASON, TOPIC

MEMORY_KBYTES = 4 << 10  # of fetched records that wait to be read

log = logging.getLogger(__name__)


class KafkaOffsetMapLog:
    """An OffsetMapLog. Raises OSError, too, when the disk is full: the next call reads the topic from its start."""

    def __init__(
        self,
        properties: Mapping[str, object],
        topic: str,
        *,
        folder: Path | None = None,
        read_within: timedelta = timedelta(seconds=60),
        answer_within: timedelta = timedelta(seconds=10),
    ) -> None:
        """`folder`: for the pages; None is that for temporary files. `read_within` must exceed the writers' transaction
        timeout: only that ends a dead writer's transaction."""
        self._topic = topic
        self._maps = PagedMaps(folder)
        self._log = TableLog(
            {**properties, "queued.max.messages.kbytes": MEMORY_KBYTES},
            topic,
            clear=self._maps.clear,
            apply=self._apply,
            on_lost=self._on_lost,
            read_within=read_within,
            answer_within=answer_within,
        )

    def read(self) -> Mapping[MapKey, PartitionPages]:
        """See OffsetMapLog. After BrokerUnavailable, the next call continues where this one stopped."""
        self._log.read()
        return self._maps.maps

    def close(self) -> None:
        self._log.close()
        self._maps.close()

    def _on_lost(self, reason: str) -> None:
        log.warning("offset_map_read_again", extra={TOPIC: self._topic, REASON: reason})

    def _apply(self, messages: Sequence[Message]) -> None:
        versions: dict[bytes, list[Message]] = {}
        for message in messages:
            key = message.key() or b""
            some = versions.pop(key, [])  # a page counts after those that were written since its earlier versions
            some.append(message)
            versions[key] = some
        malformed = [one for some in versions.values() for one in self._put_last(some)]
        if malformed:
            log.warning("malformed_offset_map", extra=malformed_fields(self._topic, malformed))

    def _put_last(self, versions: Sequence[Message]) -> Collection[tuple[Message, MalformedEvent]]:
        """The last version of one key that can be decoded counts. Returns those after it."""
        malformed = []
        for message in reversed(versions):
            try:
                self._maps.put(message.key() or b"", message.value())
            except MalformedEvent as error:
                malformed.append((message, error))
            else:
                break
        return malformed
