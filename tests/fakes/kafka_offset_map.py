"""The offset map's topic in memory: its records, read by the real pages.

topic = FakeOffsetMap()
topic.put(page)                 a TargetWriter wrote it
topic.away = True               every call raises BrokerUnavailable
topic.stopped = 1               of the pages that are to be removed, only so many are, then BrokerUnavailable
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from formats.errors import BrokerUnavailable
from formats.messages.map_key import MapKey, encode_map_key
from formats.messages.offset_map import MapPage, encode_page, encode_page_key
from infra.archive.map_pages import PagedMaps
from infra.contracts.internal_topics import PartitionPages
from infra.runtime.crash_points import Step, durable


class FakeOffsetMap:
    """An OffsetMapLog and an OffsetMapEditor."""

    def __init__(self) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.away = False
        self.stopped: int | None = None
        self._maps = PagedMaps()
        self._read = 0

    def put(self, *pages: MapPage) -> None:
        self.records += [(encode_page_key(page), encode_page(page)) for page in pages]

    def read(self) -> Mapping[MapKey, PartitionPages]:
        self._ask("read")
        for key, value in self.records[self._read :]:
            self._maps.put(key, value)
        self._read = len(self.records)
        return self._maps.maps

    def remove(self, key: MapKey, starts: Collection[int]) -> None:
        self._ask("write")
        with durable(Step.TRIM_OFFSET_MAP):
            for number, start in enumerate(starts):
                if number == self.stopped:
                    raise BrokerUnavailable("write the offset map: planned")
                self.records.append((encode_map_key(key, start), None))

    def starts(self, key: MapKey) -> list[int]:
        """Of the pages that are in the topic."""
        pages = self.read().get(key)
        return [] if pages is None else list(pages.index.starts)

    def close(self) -> None:
        self._maps.close()

    def _ask(self, what: str) -> None:
        if self.away:
            raise BrokerUnavailable(f"{what} the offset map: planned")
