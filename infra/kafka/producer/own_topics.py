"""The topics that a writer keeps of its own work: positions, and where the records are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from confluent_kafka import KafkaError

from formats.errors import WriterRefused
from infra.kafka.producer.rejections import checkpoint_rejection, offset_map_rejection


@dataclass(slots=True)
class OwnTopics:
    """Use from one thread. `rejecting`: the topic that rejected records of the last delivery, empty when none did."""

    checkpoints: str
    offset_map: str
    rejecting: str = ""

    def rejection(self, topic: str, error: KafkaError | None) -> WriterRefused | None:
        """What to raise for the error of one of these topics; None when it may be temporary."""
        return (offset_map_rejection if topic == self.offset_map else checkpoint_rejection)(error, topic)

    def check(self, topic_error: Callable[[str], KafkaError | None]) -> None:
        """Before records are sent: those whose checkpoint is rejected would be delivered again by the next attempt.
        Raises WriterRefused while the topic that has rejected some is still not to be used."""
        if self.rejecting and (refused := self.rejection(self.rejecting, topic_error(self.rejecting))) is not None:
            raise refused
