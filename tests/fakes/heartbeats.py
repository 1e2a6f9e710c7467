"""Topics of heartbeats in memory, on the topics of a FakeBroker.

topics = FakeHeartbeats(broker)
topics.refuses["a.heartbeats"] = "why"      writing to it raises TargetError
topics.away = True                          every write raises BrokerUnavailable
topics.beats("a.heartbeats")                what it has
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from formats.errors import BrokerUnavailable, TargetError
from formats.messages.mirrormaker import MirrorHeartbeat, decode_heartbeat, encode_heartbeat
from infra.contracts.cluster import TopicPartition
from infra.runtime.crash_points import Step, durable
from tests.fakes.kafka_consumer import FakeBroker


@dataclass(slots=True)
class FakeHeartbeats:
    broker: FakeBroker
    away: bool = False
    refuses: dict[str, str] = field(default_factory=dict)
    attempts: int = 0
    records: list[tuple[str, bytes, bytes]] = field(default_factory=list)  # topic, key and value

    def write(self, topic: str, beat: MirrorHeartbeat) -> None:
        self.attempts += 1
        if self.away or TopicPartition(topic, 0) not in self.broker.logs:
            raise BrokerUnavailable(f"write to {topic}: planned, or there is no such topic")
        if topic in self.refuses:
            raise TargetError(self.refuses[topic])
        with durable(Step.WRITE_HEARTBEAT):
            self.records.append((topic, *encode_heartbeat(beat)))

    def close(self) -> None: ...

    def beats(self, topic: str) -> Sequence[MirrorHeartbeat]:
        return [decode_heartbeat(key, value) for name, key, value in self.records if name == topic]
