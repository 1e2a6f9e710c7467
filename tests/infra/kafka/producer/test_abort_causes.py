from __future__ import annotations

from collections.abc import Mapping

import pytest
from confluent_kafka import KafkaError
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import WriterRefused
from infra.contracts.cluster import TopicPartition
from infra.contracts.producer import FailureKind
from infra.kafka.client.errors import FENCED
from infra.kafka.client.idempotent_producer import SECONDARY
from infra.kafka.producer.abort_causes import Abort, attribute_failures
from infra.kafka.producer.rejections import REJECTIONS, BatchSizes, RejectionScope

ONE, TWO, OTHER = TopicPartition("one", 0), TopicPartition("one", 1), TopicPartition("other", 0)
PURGED = KafkaError(KafkaError._PURGE_QUEUE)
DENIED = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
TRANSIENT = (KafkaError.NOT_ENOUGH_REPLICAS, KafkaError._MSG_TIMED_OUT, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
CODES = sorted({*REJECTIONS, *SECONDARY, *FENCED, *TRANSIENT, KafkaError.UNKNOWN_TOPIC_OR_PART})


def kinds(abort: Abort) -> Mapping[TopicPartition, FailureKind]:
    return {failure.partition: failure.kind for failure in attribute_failures(abort, BatchSizes())}


def test_only_the_named_partitions_are_the_cause() -> None:
    abort = Abort(partitions=[ONE, OTHER], failures={ONE: DENIED, OTHER: PURGED})
    assert kinds(abort) == {ONE: FailureKind.DENIED, OTHER: FailureKind.RETRY_NOW}


def test_a_cause_without_a_partition_is_searched_by_topic() -> None:
    purged = dict.fromkeys([ONE, TWO, OTHER], PURGED)
    assert set(kinds(Abort(partitions=[ONE, TWO, OTHER], failures=purged, cause=DENIED)).values()) == {
        FailureKind.DELIVER_SEPARATELY
    }
    one = Abort(partitions=[ONE, TWO], failures=purged, cause=DENIED)
    assert kinds(one) == {ONE: FailureKind.DENIED, TWO: FailureKind.DENIED}
    assert all("allow WRITE" in failure.reason for failure in attribute_failures(one, BatchSizes()))


def test_a_stale_generation_is_not_attributed_to_a_topic() -> None:
    abort = Abort(partitions=[ONE, OTHER], cause=KafkaError(KafkaError.ILLEGAL_GENERATION))
    assert set(kinds(abort).values()) == {FailureKind.RETRY_LATER}


def test_unacknowledged_partitions_are_stalled() -> None:
    late = Abort(partitions=[ONE, OTHER], failures={OTHER: PURGED}, stalled="late")
    assert kinds(late) == {ONE: FailureKind.RETRY_NOW, OTHER: FailureKind.STALLED}
    nothing = Abort(partitions=[ONE, OTHER], failures={ONE: PURGED, OTHER: PURGED}, stalled="late")
    assert set(kinds(nothing).values()) == {FailureKind.DELIVER_SEPARATELY}
    alone = Abort(partitions=[ONE, TWO], failures={ONE: PURGED, TWO: PURGED}, stalled="late")
    assert set(kinds(alone).values()) == {FailureKind.STALLED}


def test_a_rejected_writer_is_not_attributed_to_a_partition() -> None:
    with pytest.raises(WriterRefused, match="IDEMPOTENT_WRITE"):
        kinds(Abort(partitions=[ONE], cause=KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED)))


@st.composite
def aborts(draw: st.DrawFn) -> Abort:
    codes = st.sampled_from(CODES).map(KafkaError)
    partitions = draw(st.lists(st.sampled_from([ONE, TWO, OTHER]), min_size=1, unique=True))
    return Abort(
        partitions=partitions,
        failures=draw(st.dictionaries(st.sampled_from(partitions), codes)),
        rejected_by_client=draw(st.sets(st.sampled_from(partitions))),
        stalled=draw(st.sampled_from(["", "late"])),
        cause=draw(st.none() | codes),
    )


@given(aborts())
def test_every_partition_has_one_failure_and_one_of_them_waits(abort: Abort) -> None:
    try:
        found = attribute_failures(abort, BatchSizes())
    except WriterRefused:
        causes = [*abort.failures.values(), abort.cause]
        refusals = [REJECTIONS.get(cause.code()) for cause in causes if cause is not None]
        assert any(refusal is not None and refusal.about is RejectionScope.WRITER for refusal in refusals)
        return
    assert [failure.partition for failure in found] == list(abort.partitions)
    given = {failure.kind for failure in found}
    named = {p for p, error in abort.failures.items() if error.code() not in SECONDARY}
    if given == {FailureKind.RETRY_NOW}:  # repeating the same would loop: smaller batches are tried instead
        assert all(abort.failures[p].code() == KafkaError.MSG_SIZE_TOO_LARGE for p in named)
        assert named
    if FailureKind.DELIVER_SEPARATELY in given:  # with a single topic this would loop, too
        assert given == {FailureKind.DELIVER_SEPARATELY}
        assert len({p.topic for p in abort.partitions}) > 1
    if named and not abort.stalled:
        assert {f.partition for f in found if f.kind is FailureKind.RETRY_NOW} >= set(abort.partitions) - named
