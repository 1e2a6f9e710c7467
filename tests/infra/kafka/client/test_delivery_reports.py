"""What became of a run's records, by the client's reports; and when a report gets lost."""

from __future__ import annotations

from datetime import timedelta

import pytest
from confluent_kafka import KafkaError

from infra.kafka.client.delivery_reports import RunReports
from infra.kafka.client.idempotent_producer import IdempotentProducer, producer_properties

UNREACHABLE = producer_properties({"bootstrap.servers": "127.0.0.1:1", "log_level": 0}, memory_bytes=1 << 20)


class Acknowledged:
    """A message of the client's, as far as reports read it."""

    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def offset(self) -> int | None:
        return self._offset


def reported(*offsets: int | None, each: bool = False, count: int | None = None) -> RunReports:
    reports = RunReports(len(offsets) if count is None else count, each=each)
    for number, offset in enumerate(offsets):
        callback = reports.other_callback if number else reports.first_callback
        callback(None, Acknowledged(offset))  # type: ignore[arg-type]
    reports.collect()
    return reports


def test_a_run_that_lies_in_one_piece() -> None:
    assert reported(7).is_contiguous
    whole = reported(7, 8, 9)
    assert (whole.first_offset, whole.is_contiguous, whole.is_interleaved) == (7, True, False)


def test_a_run_with_records_of_others_in_between() -> None:
    mixed = reported(7, 9, 10)
    assert (mixed.is_contiguous, mixed.is_interleaved) == (False, True)
    kept = reported(7, 9, 10, each=True)
    assert kept.each_offset is not None
    assert kept.each_offset.to_pylist() == [7, 9, 10]


@pytest.mark.parametrize(
    "reports",
    [
        reported(count=3),
        reported(7, count=3),
        reported(7, 8, count=3),
        reported(None, None, None),
        reported(7, 8, None),
    ],
    ids=["nothing", "the first", "two of three", "without offsets", "the last without one"],
)
def test_what_is_not_acknowledged_whole_is_neither(reports: RunReports) -> None:
    assert not reports.is_contiguous
    assert not reports.is_interleaved
    assert reports.each_offset is None


def settled(producer: IdempotentProducer[str]) -> dict[str, KafkaError]:
    try:
        return producer.settle(wait=lambda: None, grace=timedelta())
    finally:
        producer.close(timedelta())


def test_after_a_fatal_error_without_a_cause_every_run_has_failed() -> None:
    """The report of UNKNOWN_SERVER_ERROR gets lost: its hash is -1."""
    producer: IdempotentProducer[str] = IdempotentProducer(UNREACHABLE)
    producer._owners |= {"whole", "half"}
    producer._reports.append(("half", reported(7, count=2)))
    producer.fatal = KafkaError(KafkaError._FATAL)
    assert settled(producer).keys() == {"whole", "half"}


def test_after_a_fatal_error_with_a_cause_what_is_not_whole_has_failed_too() -> None:
    producer: IdempotentProducer[str] = IdempotentProducer(UNREACHABLE)
    producer._owners |= {"whole", "half", "named"}
    producer._reports.append(("half", reported(7, count=2)))
    producer.fail("named", KafkaError(KafkaError.MSG_SIZE_TOO_LARGE))
    producer.fatal = KafkaError(KafkaError._FATAL)
    assert settled(producer).keys() == {"named", "half"}


def test_a_lost_report_of_a_kept_run_is_kept() -> None:
    """Where each offset is kept, errors are not hashed."""
    reports = RunReports(2, each=True)
    reports.first_callback(None, Acknowledged(7))  # type: ignore[arg-type]
    reports.other_callback(KafkaError(-1), Acknowledged(None))  # type: ignore[arg-type]
    assert [error.code() for error in reports.errors] == [-1]
    assert not reports.is_interleaved
