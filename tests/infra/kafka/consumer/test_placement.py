from __future__ import annotations

import contextlib
import re
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from formats.errors import BrokerUnavailable, ConfigError, OwnershipLost
from infra.contracts.cluster import TopicPartition
from infra.contracts.consumer import ConsumerDisturbed
from infra.kafka.client.librdkafka import is_fit, is_open
from infra.kafka.client.lost_brokers import LostBrokers
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.consumer import group_member
from infra.kafka.consumer import placement as placement_module
from infra.kafka.consumer.group_member import Membership
from infra.kafka.consumer.group_metadata import (
    FIRST_GENERATION,
    MAGIC,
    NO_GENERATION,
    group_metadata,
    names_member,
)
from infra.kafka.consumer.placement import KafkaPlacement
from infra.local.stack import LocalStack
from infra.runtime.lifecycle import Deadline
from infra.runtime.metrics import NoMetrics
from tests.infra.lost_client import first_client_of_a_member
from tests.infra.principal import DESCRIBE, GROUP, READ, TOPIC, Principal

PATIENCE = timedelta(seconds=20)
TURN = timedelta(milliseconds=50)
IMPATIENT = {"session.timeout.ms": "1500", "heartbeat.interval.ms": "200"}


@dataclass(slots=True)
class Owner:
    """A listener that tracks which partitions it owns."""

    owned: set[TopicPartition] = field(default_factory=set)
    calls: list[str] = field(default_factory=list)
    fail: bool = False

    def assigned(self, partitions: Collection[TopicPartition]) -> None:
        assert not self.owned & set(partitions)
        self.owned |= set(partitions)
        self.calls.append("assigned")
        if self.fail:
            self.fail = False
            raise ValueError("planned")

    def revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.owned -= set(partitions)
        self.calls.append("revoked")

    def lost(self, partitions: Collection[TopicPartition]) -> None:
        self.owned -= set(partitions)
        self.calls.append("lost")


@pytest.fixture
def bootstrap(stack: LocalStack) -> str:
    return stack.brokers["a"].bootstrap


@pytest.fixture
def partitions(bootstrap: str, topic_name: str) -> set[TopicPartition]:
    admin = KafkaAdmin({"bootstrap.servers": bootstrap})
    admin.create_topic(topic_name, partitions=4, replication_factor=1, configs={})
    return {TopicPartition(topic_name, number) for number in range(4)}


@pytest.fixture(params=["classic", "consumer"])
def make(
    request: pytest.FixtureRequest, bootstrap: str, unique: Callable[[str], str]
) -> Iterator[Callable[[], KafkaPlacement]]:
    """Members of one group."""
    group_id = unique("group")
    made: list[KafkaPlacement] = []

    def member() -> KafkaPlacement:
        properties = {"bootstrap.servers": bootstrap}
        properties |= IMPATIENT if request.param == "classic" else {"group.protocol": "consumer"}
        made.append(KafkaPlacement(properties, group_id=group_id))
        return made[-1]

    yield member
    for placement in made:
        placement.close(PATIENCE)


def drive(*placements: KafkaPlacement, until: Callable[[], object]) -> list[ConsumerDisturbed]:
    disturbed: list[ConsumerDisturbed] = []
    deadline = Deadline(PATIENCE)
    while not until():
        assert not deadline.expired
        for placement in placements:
            disturbed += placement.poll(TURN)
    return disturbed


@pytest.mark.integration
def test_partitions_are_distributed_and_taken_over(
    make: Callable[[], KafkaPlacement], partitions: set[TopicPartition], topic_name: str
) -> None:
    a, b, first, second = Owner(), Owner(), make(), make()
    first.subscribe([topic_name], a)
    assert drive(first, until=lambda: a.owned == partitions) == []
    second.subscribe([topic_name], b)
    drive(first, second, until=lambda: len(a.owned) == 2 == len(b.owned))
    assert a.owned | b.owned == partitions
    assert first.assignment() == a.owned
    assert first.fence() is not None
    second.close(PATIENCE)
    assert b.owned == set()
    drive(first, until=lambda: a.owned == partitions)


@pytest.mark.integration
def test_nothing_is_fetched(
    make: Callable[[], KafkaPlacement], partitions: set[TopicPartition], topic_name: str, bootstrap: str
) -> None:
    owner, placement = Owner(), make()
    placement.subscribe([topic_name], owner)
    drive(placement, until=lambda: owner.owned == partitions)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(4):
        producer.produce(topic_name, b"x", partition=number)
    producer.flush(30)
    assert drive(placement, until=iter([False] * 10 + [True]).__next__) == []
    client = placement._member.client
    assert client.consume(10, 0.5) == []


@pytest.mark.integration
def test_an_exception_of_a_listener_is_reported_by_poll(
    make: Callable[[], KafkaPlacement], partitions: set[TopicPartition], topic_name: str
) -> None:
    owner, placement = Owner(fail=True), make()
    placement.subscribe([topic_name], owner)
    disturbed: list[ConsumerDisturbed] = []
    disturbed += drive(placement, until=lambda: owner.owned)
    disturbed += placement.poll(TURN)
    assert [d.reason for d in disturbed] == ["ValueError: planned"]
    assert placement.assignment() == partitions


@pytest.mark.integration
def test_the_fence_is_available_during_a_revocation(
    make: Callable[[], KafkaPlacement], partitions: set[TopicPartition], topic_name: str
) -> None:
    """The caller of `fence` holds the lock that the revocation waits for, and the client may block all calls until the
    revocation has returned: both would wait forever (seen)."""
    answers: list[object] = []
    in_time: list[bool] = []

    @dataclass(slots=True)
    class Asked(Owner):
        def revoked(self, partitions: Collection[TopicPartition]) -> None:
            asking = threading.Thread(target=lambda: answers.append(first.fence()), daemon=True)
            asking.start()
            asking.join(5)
            in_time.append(bool(answers))
            Owner.revoked(self, partitions)

    a, b, first, second = Asked(), Owner(), make(), make()
    first.subscribe([topic_name], a)
    drive(first, until=lambda: a.owned == partitions)
    second.subscribe([topic_name], b)
    drive(first, second, until=lambda: len(a.owned) == 2 == len(b.owned))
    assert all(in_time), "it waited for the end of the revocation"
    assert in_time
    assert None not in answers


@pytest.mark.integration
def test_a_member_without_a_generation_has_no_fence(
    make: Callable[[], KafkaPlacement], partitions: set[TopicPartition], topic_name: str
) -> None:
    """The broker would accept such a fence, whichever member owns the partitions: see test_transactional."""
    owner, placement = Owner(), make()
    assert placement.fence() is None
    placement.subscribe([topic_name], owner)
    placement.poll(timedelta())
    assert placement.fence() is None, "it is joining, or has not tried to join yet"
    drive(placement, until=lambda: owner.owned == partitions)
    assert placement.fence() is not None
    placement._member.client.unsubscribe()  # the client leaves the group by itself
    # under KIP-848 a member keeps its id as long as it exists, with an epoch that is no generation
    drive(placement, until=lambda: owner.owned == set() and placement.fence() is None)


UNREACHABLE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": "0"}


def membership(**properties: str) -> Membership:
    return Membership(UNREACHABLE | properties, group_id="g", metrics=NoMetrics())


def test_a_client_is_closed_once_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed while it gives up thousands of partitions, it may not leave, and others wait for the end of its
    session."""
    answers = [True, True, False]
    monkeypatch.setattr(group_member, "names_member", lambda *_: answers.pop(0))
    member, left = membership(), list[bool]()
    member.before_close = lambda: left.append(not answers)
    member.close(PATIENCE)
    assert left == [True]


def test_a_static_member_does_not_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "names_member", lambda *_: pytest.fail("it was asked"))
    membership(**{"group.instance.id": "one"}).close(PATIENCE)


def test_a_client_that_does_not_leave_has_half_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_member, "names_member", lambda *_: True)
    member, left_after = membership(), list[float]()
    began = time.monotonic()
    member.before_close = lambda: left_after.append(time.monotonic() - began)
    member.close(timedelta(seconds=1))
    assert 0.4 < left_after[0] < 0.9


@pytest.mark.integration
def test_the_library_and_the_client_give_the_same_metadata(
    make: Callable[[], KafkaPlacement], partitions: set[TopicPartition], topic_name: str
) -> None:
    """Before the member has joined, in the group, and after it has left."""
    assert is_fit(), "else the client would be compared with itself"
    owner, placement = Owner(), make()
    client = placement._member.client

    def steady() -> tuple[bytes, str]:
        """Metadata and member id between two changes: the client's own thread makes them at any time."""
        while True:
            before, member = client.consumer_group_metadata(), client.memberid() or ""
            metadata = group_metadata(client)
            if before == client.consumer_group_metadata() and member == (client.memberid() or ""):
                assert metadata == before
                return metadata, member

    metadata, _ = steady()
    assert metadata.startswith(NO_GENERATION)
    assert not names_member(client, metadata)
    placement.subscribe([topic_name], owner)
    drive(placement, until=lambda: owner.owned == partitions)
    metadata, member = steady()
    assert int.from_bytes(metadata[len(MAGIC) : len(NO_GENERATION)], sys.byteorder, signed=True) >= FIRST_GENERATION
    assert metadata[len(NO_GENERATION) :].split(b"\0")[1].decode() == member != ""
    assert names_member(client, metadata)
    client.unsubscribe()
    drive(placement, until=lambda: owner.owned == set() and not names_member(client, steady()[0]))
    placement.close(PATIENCE)
    assert not is_open(client)
    with pytest.raises(RuntimeError, match="closed"):
        group_metadata(client)


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        (b"CGMDv2:\x01\0\0\0group\0member\0\0", True),
        (b"CGMDv2:\x01\0\0\0group\0\0\0", False),
        (b"CGMDv2:\x01\0\0\0group\0", False),
        (b"CGMDv2:\x01\0\0\0", False),
        (b"CGMDv2:\x01\0\0\0\0member\0\0", True),
        (b"CGMDv2:\0\0\0\0group\0member\0\0", False),
        (b"CGMDv2:\xfe\xff\xff\xffgroup\0member\0\0", False),
        (b"CGMDv2:\xff\xff\xff\xffgroup\0member\0\0", False),
    ],
)
def test_metadata_without_a_member_or_a_generation_names_none(metadata: bytes, names: bool) -> None:
    with closing(Consumer({"group.id": "g"})) as client:
        assert names_member(client, metadata) is names


def test_of_metadata_in_another_form_the_client_knows_whether_it_is_a_member() -> None:
    with closing(Consumer({"group.id": "g"})) as client:
        assert not client.memberid()
        assert not names_member(client, b"CGMDv3:\x01\0\0\0group\0member\0\0")


@pytest.mark.long
@pytest.mark.integration
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_without_permission_is_reported(
    stack: LocalStack, partitions: set[TopicPartition], topic_name: str, unique: Callable[[str], str], protocol: str
) -> None:
    principal, group = Principal(stack.brokers["a"], unique("worker")), unique("group")
    principal.allow(TOPIC, topic_name, DESCRIBE)
    owner, placement = Owner(), KafkaPlacement({**principal.properties, "group.protocol": protocol}, group_id=group)
    try:
        placement.subscribe([topic_name], owner)
        drive(placement, until=lambda: placement.problem)
        assert re.search(f"{group}.*GROUP_AUTHORIZATION_FAILED.*allow READ on the group", placement.problem)
        assert drive(placement, until=iter([False] * 60 + [True]).__next__) == []
        assert placement.problem, "as long as it lasts"
        principal.allow(GROUP, group, READ)
        drive(placement, until=lambda: owner.owned == partitions)
        placement.wait_until_settled(partitions)
        drive(placement, until=lambda: not placement.problem)
    finally:
        placement.close(PATIENCE)


@pytest.mark.integration
def test_a_member_ends_when_its_client_has_an_unknown_assignment(
    make: Callable[[], KafkaPlacement],
    partitions: set[TopicPartition],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The client rejects a callback's request and assigns by itself: no member would work on these partitions."""

    class Refuses(Consumer):
        def incremental_assign(self, partitions: object) -> None:
            raise KafkaException(KafkaError(KafkaError._STATE))

    monkeypatch.setattr("infra.kafka.consumer.group_member.Consumer", Refuses)
    owner, placement = Owner(), make()
    placement.subscribe([topic_name], owner)
    with pytest.raises(OwnershipLost, match=rf"_STATE.*{topic_name}/0.*nothing.*restart the process"):
        drive(placement, until=lambda: owner.owned)


@pytest.mark.integration
def test_a_member_ends_when_it_was_not_notified_of_a_loss(
    make: Callable[[], KafkaPlacement],
    partitions: set[TopicPartition],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would write to partitions of another member. The listener is notified of the loss before the member ends."""

    class Deaf(Consumer):
        def subscribe(self, topics: list[str], *rest: Any, **callbacks: Any) -> None:
            def on_revoke(*_: object) -> None:
                raise ZeroDivisionError

            super().subscribe(topics, *rest, **(callbacks | {"on_revoke": on_revoke}))

    monkeypatch.setattr("infra.kafka.consumer.group_member.Consumer", Deaf)
    a, b, first, second = Owner(), Owner(), make(), make()
    first.subscribe([topic_name], a)
    drive(first, until=lambda: a.owned == partitions)
    second.subscribe([topic_name], b)
    with pytest.raises(OwnershipLost, match="ZeroDivisionError"):
        drive(first, second, until=lambda: b.owned)
    assert (a.owned, a.calls[-1]) == (set(), "lost")


@pytest.mark.integration
def test_a_member_whose_client_lost_every_broker_joins_again_with_another(
    make: Callable[[], KafkaPlacement],
    partitions: set[TopicPartition],
    topic_name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loss = first_client_of_a_member(monkeypatch)
    owner, placement = Owner(), make()
    placement.subscribe([topic_name], owner)
    drive(placement, until=lambda: owner.owned == partitions)
    loss.happened = True
    drive(placement, until=lambda: "lost" in owner.calls)
    assert owner.owned == set()
    assert placement.fence() is None, "the new client is in no generation yet"
    drive(placement, until=lambda: owner.owned == partitions)
    assert owner.calls == ["assigned", "lost", "assigned"]
    assert placement.fence() is not None


def test_a_member_keeps_its_client_where_no_other_can_be_made_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as without a token: what makes tokens may be away for as long as the brokers."""
    member, closed, heard = membership(), list[str](), list[str]()
    callback = member._guarded(heard.append)
    member.before_close = lambda: closed.append("queue")
    member.subscribe(["t"], Owner())
    former = member.client
    monkeypatch.setattr(LostBrokers, "suspected", lambda *_: True)

    def refuses(*_: object, **__: object) -> object:
        raise BrokerUnavailable("no token")

    with monkeypatch.context() as without_token:
        without_token.setattr(group_member, "connect", refuses)
        assert member.consume(1, timedelta()) == []
    callback("a revocation")
    assert (member.client, closed, heard) == (former, [], ["a revocation"])
    assert member.consume(1, timedelta()) == []
    assert member.client is not former
    assert closed == ["queue"]
    member.close(PATIENCE)


def test_waiting_for_a_transaction_of_others_holds_up_no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client takes one call at a time, and the answer comes when the transaction ends: a member that does not poll
    meanwhile follows no revocation, and counts as frozen."""
    monkeypatch.setattr(placement_module, "ANSWER_TIMEOUT", timedelta(seconds=2))
    placement, answers = KafkaPlacement({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, group_id="g"), []

    def ask() -> None:
        try:
            placement.wait_until_settled([TopicPartition("t", 0)])
        except BrokerUnavailable as error:
            answers.append(str(error))

    asking, longest = threading.Thread(target=ask), 0.0
    asking.start()
    while asking.is_alive():
        began = time.monotonic()
        placement.poll(timedelta())
        longest = max(longest, time.monotonic() - began)
    placement.close(PATIENCE)
    assert longest < 1
    assert "of group g" in answers[0]


def test_an_answer_that_does_not_come_holds_up_no_close() -> None:
    placement = KafkaPlacement({"bootstrap.servers": "127.0.0.1:1", "log_level": "0"}, group_id="g")
    began, asked = time.monotonic(), threading.Event()

    def ask() -> None:
        asked.set()
        with contextlib.suppress(BrokerUnavailable):
            placement.wait_until_settled([TopicPartition("t", 0)])

    threading.Thread(target=ask, daemon=True).start()
    assert asked.wait(PATIENCE.total_seconds())
    placement.close(timedelta(seconds=1))
    assert time.monotonic() - began < 5


def test_the_isolation_level_cannot_be_changed() -> None:
    with pytest.raises(ConfigError, match=r'isolation\.level" = "read_uncommitted": must be "read_committed"'):
        KafkaPlacement({"isolation.level": "read_uncommitted"}, group_id="g")
