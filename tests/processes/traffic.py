"""Records of every kind that a client can write, made by seed and produced while the system under test runs.

bursts(seed) ──> plain │ one transaction, committed or aborted ──> all partitions of one topic
finish()     ──> one last record per partition, unlike any other: a reader that has it has seen everything
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

FOREVER = str(2**63 - 1)
KEEPS_EVERYTHING = {
    "retention.ms": "-1",
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
    "segment.ms": FOREVER,  # stamps that jump by years would make the broker roll a file each time
}
COMPACTED = {
    "cleanup.policy": "compact",
    "retention.ms": "-1",  # the target's copy is not compacted, see the harness, and nothing of it may expire
    "segment.ms": "500",
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "600000",  # tombstones stay until the test is over
    "message.timestamp.before.max.ms": FOREVER,
    "message.timestamp.after.max.ms": FOREVER,
}
BIG_BYTES = 900_000
EPOCH_MS = 1_700_000_000_000
ODD_STAMPS = (-1, 1, 999, EPOCH_MS, EPOCH_MS + 10 * 365 * 86_400_000)  # 0 would be sent as the current time
CALL_SECONDS = 30.0
START_SECONDS = 5.0
GIVEN_UP = (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT, KafkaError._MSG_TIMED_OUT)

Header = tuple[str, bytes | None]


class Draft(NamedTuple):
    """A record as it is handed to the client."""

    partition: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int


class Kind(Enum):
    PLAIN = auto()
    COMMITTED = auto()
    ABORTED = auto()


@dataclass(frozen=True, slots=True)
class Burst:
    kind: Kind
    drafts: Sequence[Draft]


def create_topic(bootstrap: str, topic: str, partitions: int, config: Mapping[str, str] = KEEPS_EVERYTHING) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    for future in admin.create_topics([NewTopic(topic, partitions, -1, config=dict(config))]).values():
        future.result(CALL_SECONDS)


# --- what -------------------------------------------------------------------------------------------------------------


def bursts(seed: int, partitions: int, *, most: int = 300, keyed: bool = False) -> Iterator[Burst]:
    """Without end, and the same for the same arguments. `most`: records in one burst. `keyed`: fit for a compacted
    topic, see `keyed_draft`."""
    random = Random(seed)
    number = 0
    while True:
        (kind,) = random.choices(list(Kind), weights=(6, 3, 1))
        places = random.choices(range(partitions), k=random.choice((1, 2, partitions)))
        drafts = []
        for _ in range(random.choice((1, 3, most // 4, most))):
            number += 1
            one = draft(random, number, random.choice(places))
            drafts.append(keyed_draft(one, number) if keyed else one)
        if random.random() < 0.04:
            drafts.append(drafts[-1]._replace(value=random.randbytes(BIG_BYTES)))
        yield Burst(kind, drafts)


def draft(random: Random, number: int, partition: int) -> Draft:
    """The `number`-th record."""
    key: bytes | None
    match random.randrange(8):
        case 0:
            key = None
        case 1:
            key = b""
        case 2:
            key = random.randbytes(random.randint(1, 600))
        case _:
            key = b"key-%d" % random.randrange(50)
    value: bytes | None
    match random.randrange(12):
        case 0:
            value = None  # a tombstone
        case 1:
            value = b""
        case 2:
            value = random.randbytes(random.randint(1, 20_000))
        case _:
            value = b"value-%d " % number + b"x" * random.randrange(200)
    stamp = random.choice(ODD_STAMPS) if random.random() < 0.05 else EPOCH_MS + number
    return Draft(partition, key, value, _headers(random), stamp)


def keyed_draft(each: Draft, number: int) -> Draft:
    """A compacted topic takes no record without a key. The stamps make the broker roll its files at a steady pace, and
    only closed files are compacted."""
    return each._replace(key=b"none" if each.key is None else each.key, timestamp_ms=EPOCH_MS + 20 * number)


def _headers(random: Random) -> Sequence[Header]:
    match random.randrange(10):
        case 0:
            return [("same", b"1"), ("same", b"1"), ("same", b"2"), ("other", b""), ("same", None)]
        case 1:
            return [("", b""), ("ü→", random.randbytes(9)), ("null", None)]
        case 2 if random.random() < 0.1:
            return [(f"h{n % 7}", random.randbytes(n % 40)) for n in range(200)]
        case 3:
            return [("big", random.randbytes(3000))]
        case 4 | 5 | 6:
            return [("trace", b"%d" % random.randrange(1000))]
        case _:
            return []


def last_words(partitions: int) -> Sequence[Draft]:
    """One per partition, unlike any other record."""
    return [Draft(p, b"last", uuid.uuid4().bytes, [("last", b"1")], EPOCH_MS) for p in range(partitions)]


# --- how --------------------------------------------------------------------------------------------------------------


class Traffic:
    """Produces from a thread of its own from `start` to `finish`. A context manager, which ends it in every case."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        seed: int,
        most: int = 300,
        transactions: bool = True,
        keyed: bool = False,
    ) -> None:
        """`keyed`: for a compacted topic; without transactions, and `sent` has every record in order."""
        self._bootstrap, self._topic, self._partitions = bootstrap, topic, partitions
        self._seed, self._most = seed, most
        self._transactions, self._keyed = transactions and not keyed, keyed
        self._plain = _plain_producer(bootstrap)
        self._transactional: Producer | None = None
        self._id = f"traffic-{uuid.uuid4()}"
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="traffic")
        self.bursts = 0
        self.sent: list[Draft] = []  # if keyed
        self._plainly = self._committed = 0  # records

    @property
    def taken(self) -> int:
        """Records that the broker has and that readers of committed records see; may lag behind by a few."""
        return self._plainly - len(self._plain) + self._committed

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> Sequence[Draft]:
        """Stop producing; the last words, which the broker has when this returns. Raises what went wrong."""
        self._end()
        if self._error is not None:
            raise self._error
        words = last_words(self._partitions)
        self._send(self._plain, words)
        _flush(self._plain)
        if self._keyed:
            self.sent += words
        return words

    def __enter__(self) -> Traffic:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def _end(self) -> None:
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        pace = Random(self._seed + 1)
        try:
            for burst in bursts(self._seed, self._partitions, most=self._most, keyed=self._keyed):
                if self._stop.wait(pace.uniform(0, 0.1)):
                    break
                if burst.kind is Kind.PLAIN or not self._transactions:
                    self._send(self._plain, burst.drafts)
                    self._plainly += len(burst.drafts)
                    self._plain.poll(0)
                    if self._keyed:
                        self.sent += burst.drafts
                else:
                    self._transact(burst)
                self.bursts += 1
            _flush(self._plain)
        except BaseException as error:
            self._error = error

    def _send(self, producer: Producer, drafts: Sequence[Draft]) -> None:
        for each in drafts:
            while True:
                try:
                    produce(producer, self._topic, each)
                except BufferError:
                    producer.poll(0.1)
                else:
                    break

    def _transact(self, burst: Burst) -> None:
        """One transaction. Whether it is committed matters to the source's log alone: the judge reads that."""
        try:
            if self._transactional is None:
                self._transactional = _transactional_producer(self._bootstrap, self._id)
            producer = self._transactional
            producer.begin_transaction()
            self._send(producer, burst.drafts)
            if burst.kind is Kind.COMMITTED:
                _again(lambda: producer.commit_transaction(CALL_SECONDS), self._stop)
                self._committed += len(burst.drafts)
            else:
                producer.flush(CALL_SECONDS)  # else they would be dropped here and never reach the log
                _again(lambda: producer.abort_transaction(CALL_SECONDS), self._stop)
        except KafkaException as error:
            cause: KafkaError = error.args[0]
            is_open = self._transactional is not None and cause.txn_requires_abort()
            if not (is_open and _aborted(producer, self._stop)):
                self._transactional = None  # another producer with the same id ends what this one left open


def produce_all(bootstrap: str, topic: str, drafts: Sequence[Draft]) -> None:
    """In order; the broker has them all when this returns."""
    producer = _plain_producer(bootstrap)
    for each in drafts:
        produce(producer, topic, each)
        producer.poll(0)
    _flush(producer)


def produce(producer: Producer, topic: str, each: Draft) -> None:
    producer.produce(
        topic,
        value=each.value,
        key=each.key,
        partition=each.partition,
        timestamp=each.timestamp_ms,
        headers=list(each.headers) or None,
        on_delivery=_delivered,
    )


def _again(call: Any, stop: threading.Event) -> None:
    """A retriable failure of a transaction call asks for the same call again; a broker may be away for long."""
    while True:
        try:
            call()
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            stop.wait(0.1)
        else:
            return


def _aborted(producer: Producer, stop: threading.Event) -> bool:
    """False when the producer cannot go on: a broker that was killed has forgotten the transaction (INVALID_TXN_STATE,
    which is fatal; seen)."""
    try:
        _again(lambda: producer.abort_transaction(CALL_SECONDS), stop)
    except KafkaException:
        return False
    return True


def _delivered(error: KafkaError | None, _message: object) -> None:
    """What was aborted on purpose is purged, and what a transaction had no time for makes its commit fail; anything
    else means that the test itself is broken. A record outside of transactions gets five minutes."""
    if error is not None and error.code() not in GIVEN_UP:
        raise KafkaException(error)


def _flush(producer: Producer, timeout: timedelta = timedelta(seconds=120)) -> None:
    left = producer.flush(timeout.total_seconds())
    if left:
        raise TimeoutError(f"{left} records were not taken in {timeout}")


def _plain_producer(bootstrap: str) -> Producer:
    return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})


def _transactional_producer(bootstrap: str, transactional_id: str) -> Producer:
    """Raises KafkaException when the broker is away."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": transactional_id,
            "transaction.timeout.ms": 10_000,
            "linger.ms": 5,
            "log_level": 0,
        }
    )
    producer.init_transactions(START_SECONDS)
    return producer
