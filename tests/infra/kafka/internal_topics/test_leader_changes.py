"""What a broker answers while a leader is elected passes by itself: the request is repeated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta

import pytest
from confluent_kafka import KafkaError, KafkaException

from infra.kafka.internal_topics.topic_log import TopicLog

WITHIN = timedelta(seconds=30)


@pytest.fixture
def topic_log() -> Iterator[TopicLog]:
    properties = {"bootstrap.servers": "127.0.0.1:1", "log_level": 0}  # no broker answers
    with closing(TopicLog(properties, "t", answer_within=WITHIN, check_every=WITHIN)) as log:
        yield log


@pytest.mark.parametrize(
    "code",
    [
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError.FENCED_LEADER_EPOCH,
    ],
)
def test_an_answer_during_an_election_is_repeated(topic_log: TopicLog, code: int) -> None:
    refusals = [KafkaException(KafkaError(code)) for _ in range(2)]

    def ask() -> dict[int, int]:
        if refusals:
            raise refusals.pop()
        return {0: 7}

    assert topic_log._retrying(ask) == {0: 7}


def test_a_refusal_is_not_repeated(topic_log: TopicLog) -> None:
    answers = iter([KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))])

    def ask() -> None:
        raise next(answers)

    with pytest.raises(KafkaException):
        topic_log._retrying(ask)
