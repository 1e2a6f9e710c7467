"""What every HeartbeatWriter does."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from formats.errors import BrokerUnavailable
from formats.messages.mirrormaker import MirrorHeartbeat
from infra.contracts.internal_topics import HeartbeatWriter

GOLDEN = (bytes.fromhex("000141000142"), bytes.fromhex("00000000018bcfe56800"))


def beat(at: int = 1_700_000_000_000) -> MirrorHeartbeat:
    return MirrorHeartbeat(source_alias="A", target_alias="B", timestamp_ms=at)


class HeartbeatContract:
    """Subclasses give `writer`, and `topic`: one that exists; `stored` reads its first partition."""

    def stored(self, topic: str) -> Sequence[tuple[bytes | None, bytes | None]]:
        raise NotImplementedError

    def test_a_record_is_mirrormakers_byte_for_byte(self, writer: HeartbeatWriter, topic: str) -> None:
        writer.write(topic, beat())
        assert list(self.stored(topic)) == [GOLDEN]

    def test_records_are_in_order(self, writer: HeartbeatWriter, topic: str) -> None:
        for at in range(3):
            writer.write(topic, beat(at))
        assert [value[-1:] for _, value in self.stored(topic) if value is not None] == [b"\x00", b"\x01", b"\x02"]

    def test_a_topic_that_is_missing_is_not_created(self, writer: HeartbeatWriter, topic: str) -> None:
        with pytest.raises(BrokerUnavailable, match="missing"):
            writer.write(f"{topic}.missing", beat())
        writer.write(topic, beat())
        assert list(self.stored(topic)) == [GOLDEN]

    def test_closing_twice(self, writer: HeartbeatWriter) -> None:
        writer.close()
        writer.close()
