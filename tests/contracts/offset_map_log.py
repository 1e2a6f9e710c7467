"""What every OffsetMapLog does, with what an OffsetMapEditor writes."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import replace

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.map_key import MapKey
from formats.messages.offset_map import MapPage
from infra.contracts.internal_topics import OffsetMapEditor, OffsetMapLog, PartitionPages
from tests.ingress.groups.offset_maps import KEY, page

OTHER = replace(KEY, destination_id="id-2")


def pages_of(found: Mapping[MapKey, PartitionPages]) -> dict[MapKey, list[MapPage]]:
    return {key: [one.page(number) for number in range(len(one.index))] for key, one in found.items()}


class OffsetMapLogContract:
    """Subclasses give the fixtures `maps`, of an empty topic, and `editor`, and write past both."""

    def put(self, *pages: MapPage) -> None:
        """Acknowledged when this returns."""
        raise NotImplementedError

    def away(self) -> AbstractContextManager[None]:
        """The cluster does not answer."""
        raise NotImplementedError

    def test_nothing_yet(self, maps: OffsetMapLog) -> None:
        assert maps.read() == {}
        assert maps.read() == {}

    def test_what_was_acknowledged_is_read(self, maps: OffsetMapLog) -> None:
        first, second = page(0, [(0, 0, 5)]), page(5, [(5, 6, 2)])
        self.put(first)
        assert pages_of(maps.read()) == {KEY: [first]}
        self.put(second)
        assert pages_of(maps.read()) == {KEY: [first, second]}

    def test_a_page_that_grows_replaces_its_earlier_versions(self, maps: OffsetMapLog) -> None:
        for count in range(1, 20):
            self.put(page(0, [(0, 0, count)]))
            if count % 7 == 0:
                assert pages_of(maps.read()) == {KEY: [page(0, [(0, 0, count)])]}
        assert pages_of(maps.read()) == {KEY: [page(0, [(0, 0, 19)])]}

    def test_incarnations_of_the_destination_are_kept_apart(self, maps: OffsetMapLog) -> None:
        first, second = page(0, [(0, 0, 5)]), page(0, [(0, 0, 7)], OTHER)
        self.put(first, second)
        assert pages_of(maps.read()) == {KEY: [first], OTHER: [second]}

    def test_pages_are_removed(self, maps: OffsetMapLog, editor: OffsetMapEditor) -> None:
        some = [page(n * 5, [(n * 5, n * 6, 5)]) for n in range(4)]
        self.put(*some, page(0, [(0, 0, 7)], OTHER))
        maps.read()
        editor.remove(KEY, [0, 6, 7])
        editor.remove(OTHER, [0])
        assert pages_of(maps.read()) == {KEY: some[2:]}
        editor.remove(KEY, [0, 6])
        editor.remove(KEY, [])
        assert pages_of(maps.read()) == {KEY: some[2:]}

    def test_no_answer_rather_than_a_part_of_one(self, maps: OffsetMapLog, editor: OffsetMapEditor) -> None:
        self.put(page(0, [(0, 0, 5)]))
        maps.read()
        with self.away():
            with pytest.raises(BrokerUnavailable):
                maps.read()
            with pytest.raises(BrokerUnavailable):
                editor.remove(KEY, [0])
