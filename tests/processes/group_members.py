"""What a consumer group reads when its members start: a real consumer, from where the group stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import timedelta

from confluent_kafka import Consumer, KafkaError, KafkaException, Message

from infra.local.waiting import wait_until

Values = Mapping[int, Sequence[bytes | None]]  # by partition, in order


def read_on(
    bootstrap: str, group: str, topic: str, partitions: int, patience: timedelta, *, most: int | None = None
) -> Values:
    """As the only member, to the end of every partition, or so many records at `most`; commits behind what it read.
    Raises KafkaException where the group has no offset, or one that the log does not have: it is never reset."""
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "log_level": 0,
    }
    found: list[Message] = []
    ended: set[int | None] = set()

    def is_done(consumer: Consumer) -> bool:
        message = consumer.poll(0.1)
        error = None if message is None else message.error()
        if message is None:
            pass
        elif error is None:
            found.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
        else:
            raise KafkaException(error)
        return len(ended) == partitions or len(found) == most

    with closing(Consumer(settings)) as consumer:
        consumer.subscribe([topic])
        assert wait_until(lambda: is_done(consumer), patience), f"{group}: {len(found)} records, the ends of {ended}"
        if found:
            consumer.commit(asynchronous=False)
    return {number: [one.value() for one in found if one.partition() == number] for number in range(partitions)}
