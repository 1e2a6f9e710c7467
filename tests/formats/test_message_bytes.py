"""Stability of the encodings: every message has these bytes, and decoders accept what they always accepted."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from formats.control.archive_begin import ArchiveBegin, decode_begin, encode_begin
from formats.control.claim import TopicClaim, decode_topic_claim, encode_topic_claim
from formats.control.fork import LogFork, decode_fork, encode_fork
from formats.control.gap import RecordedGap, decode_gap, encode_gap
from formats.control.heartbeat import WriterHeartbeat, decode_heartbeat, encode_heartbeat
from formats.control.lease import Lease, decode_lease, encode_lease
from formats.control.quarantine import Quarantined, decode_quarantined, encode_quarantined
from formats.errors import MalformedEvent
from formats.messages import delivery_checkpoint as checkpoints
from formats.messages import segment_events
from formats.messages.delivery_checkpoint import Author, Checkpoint, CheckpointKey, Parked, Skipped, Waiting
from formats.messages.group_claim import GroupClaim, decode_claim, encode_claim, encode_claim_key
from formats.messages.segment_events import Created, Removed
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition
from infra.archive import job_heartbeats, proofs
from infra.archive.job_heartbeats import Heartbeat
from infra.archive.proofs import Proof

T0 = datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC)
AT = "2026-01-02T03:04:05.000678+00:00"
SOURCE = SourcePartition("r", "t", 3, "id")
OFFSETS = OffsetRange(5, 9)
KEY = CheckpointKey(SOURCE, "copy")
KEY_BYTES = b'{"destination":"copy","incarnation":"id","partition":3,"region":"r","topic":"t"}'
SEGMENT = Segment(SOURCE, 1, OFFSETS)
NAME = "r/t@id/3/1/00000000000000000005-00000000000000000009"
SKIPPED = Skipped(key=KEY, offsets=OFFSETS, reason="é", at=T0)
CLAIM = GroupClaim(id="one", number=2, group_id="g", cluster_id="c", over="h", at=T0)


@dataclass(frozen=True)
class Message:
    value: object
    data: str
    encode: Callable[..., bytes]
    decode: Callable[[bytes], object]
    error: str
    absent: tuple[str, ...] = ()  # fields that older programs did not write


MESSAGES = {
    "begin": Message(
        ArchiveBegin(offset=7, reason="é\n", recorded_at=T0),
        rf'{{"offset":7,"reason":"\u00e9\n","recorded_at":"{AT}","v":1}}',
        encode_begin,
        decode_begin,
        "not the begin of an archive",
    ),
    "writer heartbeat": Message(
        WriterHeartbeat(writer="w", written_at=T0, interval_ms=5000, is_last=True, catalog=3, watermarks=4),
        f'{{"catalog":3,"interval_ms":5000,"is_last":true,"v":1,"watermarks":4,"writer":"w","written_at":"{AT}"}}',
        encode_heartbeat,
        decode_heartbeat,
        "not a heartbeat",
    ),
    "writer heartbeat with times": Message(
        WriterHeartbeat(
            writer="w", written_at=T0, interval_ms=5, catalog=3, watermarks=4, watermarks_at=T0, groups=5, groups_at=T0
        ),
        f'{{"catalog":3,"groups":5,"groups_at":"{AT}","interval_ms":5,"is_last":false,"v":1,"watermarks":4,'
        f'"watermarks_at":"{AT}","writer":"w","written_at":"{AT}"}}',
        encode_heartbeat,
        decode_heartbeat,
        "not a heartbeat",
        absent=("watermarks_at", "groups", "groups_at"),
    ),
    "claim": Message(
        TopicClaim(topic_id="x", cluster_id="c", number=4, claimed_at=T0),
        f'{{"claimed_at":"{AT}","cluster_id":"c","number":4,"topic_id":"x","v":1}}',
        encode_topic_claim,
        decode_topic_claim,
        "not a claim of an archive path",
    ),
    "claim behind a fork": Message(
        TopicClaim(topic_id="x", cluster_id="c", number=4, claimed_at=T0, fork=2, forked_from="t@x-fork1"),
        f'{{"claimed_at":"{AT}","cluster_id":"c","fork":2,"forked_from":"t@x-fork1","number":4,"topic_id":"x","v":1}}',
        encode_topic_claim,
        decode_topic_claim,
        "not a claim of an archive path",
        absent=("fork", "forked_from"),
    ),
    "fork": Message(
        LogFork(source=SOURCE, next_offset=9, leader_epoch=2, end_offset=5, found_at=T0, evidence="e"),
        f'{{"end_offset":5,"evidence":"e","found_at":"{AT}","leader_epoch":2,"next_offset":9,"v":1}}',
        encode_fork,
        lambda data: decode_fork(SOURCE, data),
        "not a fork of r/t@id/3",
        absent=("evidence",),
    ),
    "fork by records": Message(
        LogFork(source=SOURCE, next_offset=9, leader_epoch=None, end_offset=None, found_at=T0),
        f'{{"end_offset":null,"evidence":"","found_at":"{AT}","leader_epoch":null,"next_offset":9,"v":1}}',
        encode_fork,
        lambda data: decode_fork(SOURCE, data),
        "not a fork of r/t@id/3",
        absent=("evidence",),
    ),
    "gap": Message(
        RecordedGap(source=SOURCE, offsets=OFFSETS, reason="lost", low=1, high=20, recorded_at=T0),
        f'{{"high":20,"low":1,"reason":"lost","recorded_at":"{AT}","v":1}}',
        encode_gap,
        lambda data: decode_gap(SOURCE, OFFSETS, data),
        "not a recorded gap of r/t@id/3 at [5,9]",
    ),
    "accepted gap": Message(
        RecordedGap(source=SOURCE, offsets=OFFSETS, reason="lost", low=1, high=20, recorded_at=T0, is_accepted=True),
        f'{{"high":20,"is_accepted":true,"low":1,"reason":"lost","recorded_at":"{AT}","v":1}}',
        encode_gap,
        lambda data: decode_gap(SOURCE, OFFSETS, data),
        "not a recorded gap of r/t@id/3 at [5,9]",
        absent=("is_accepted",),
    ),
    "lease": Message(
        Lease(token=6, owner="host:1:word", until=T0),
        f'{{"owner":"host:1:word","until":"{AT}","v":1}}',
        encode_lease,
        lambda data: decode_lease(6, data),
        "not a lease",
    ),
    "quarantine": Message(
        Quarantined(stored_at=T0, reason="cut short", found_at=T0),
        f'{{"found_at":"{AT}","reason":"cut short","stored_at":"{AT}","v":1}}',
        encode_quarantined,
        decode_quarantined,
        "not a quarantined segment",
    ),
    "checkpoint": Message(
        Checkpoint(5, "x", T0, Author.EXACTLY_ONCE),
        f'{{"at":"{AT}","author":"exactly-once","destination_topic_id":"x","next_offset":5,"v":1}}',
        checkpoints.encode,
        checkpoints.decode,
        "not a checkpoint",
    ),
    "checkpoint by an operator": Message(
        Checkpoint(5, "x", T0, Author.SEED, given_at=0, begun_at=3),
        f'{{"at":"{AT}","author":"seed","begun_at":3,"destination_topic_id":"x","given_at":0,"next_offset":5,"v":1}}',
        checkpoints.encode,
        checkpoints.decode,
        "not a checkpoint",
        absent=("begun_at", "given_at"),
    ),
    "checkpoint after a transform": Message(
        Checkpoint(5, "x", T0, begun_at=3, dropped=2),
        f'{{"at":"{AT}","author":"at-least-once","begun_at":3,"destination_topic_id":"x","dropped":2,"next_offset":5,'
        '"v":1}',
        checkpoints.encode,
        checkpoints.decode,
        "not a checkpoint",
        absent=("begun_at", "dropped"),
    ),
    "checkpoint with the source's offsets": Message(
        Checkpoint(5, "x", T0, keeps_offsets=True),
        f'{{"at":"{AT}","author":"at-least-once","destination_topic_id":"x","keeps_offsets":true,"next_offset":5,"v":1}}',
        checkpoints.encode,
        checkpoints.decode,
        "not a checkpoint",
        absent=("keeps_offsets",),
    ),
    "parked": Message(
        Parked(None, "why", T0, blames_target=True),
        f'{{"blames_target":true,"next_offset":null,"reason":"why","since":"{AT}","v":1}}',
        checkpoints.encode_parked,
        checkpoints.decode_parked,
        "not a parked partition",
    ),
    "waiting": Message(
        Waiting(8, T0),
        f'{{"is_beginning":false,"offset":8,"since":"{AT}","v":1}}',
        checkpoints.encode_waiting,
        checkpoints.decode_waiting,
        "not a partition that waits",
    ),
    "skipped": Message(
        SKIPPED,
        rf'{{"at":"{AT}","reason":"\u00e9","v":1}}',
        checkpoints.encode_skipped,
        lambda data: checkpoints.decode_skipped(checkpoints.encode_skipped_key(SKIPPED), data),
        "not skipped offsets",
    ),
    "owner": Message(
        "token",
        '{"token":"token","v":1}',
        checkpoints.encode_owner,
        lambda data: checkpoints.decode_owner(checkpoints.encode_owner_key("id"), data)[1],
        "not an owner",
    ),
    "group claim": Message(
        CLAIM,
        f'{{"at":"{AT}","cluster_id":"c","group_id":"g","number":2,"over":"h","v":1}}',
        encode_claim,
        lambda data: decode_claim(encode_claim_key(CLAIM), data),
        "not the claim of a group",
    ),
    "created": Message(
        Created(SegmentInfo(SEGMENT, 12, T0)),
        f'{{"segment":"{NAME}","size_bytes":12,"stored_at":"{AT}","type":"created","v":1}}',
        segment_events.encode,
        segment_events.decode,
        "not a segment event",
    ),
    "removed": Message(
        Removed(SEGMENT, T0),
        f'{{"at":"{AT}","segment":"{NAME}","type":"removed","v":1}}',
        segment_events.encode,
        segment_events.decode,
        "not a segment event",
    ),
    "proofs": Message(
        {10: Proof(at=T0, next_offset=5, is_whole=True), 2: Proof(at=T0, next_offset=0, is_whole=False)},
        f'{{"partitions":{{"10":{{"at":"{AT}","next_offset":5,"whole":true}},'
        f'"2":{{"at":"{AT}","next_offset":0,"whole":false}}}},"v":1}}',
        proofs.encode,
        proofs.decode,
        "not proofs of partitions",
    ),
    "heartbeat": Message(
        Heartbeat(owner="host:1:word", jobs=("small", "large"), until=T0),
        f'{{"jobs":["small","large"],"owner":"host:1:word","until":"{AT}","v":1}}',
        job_heartbeats.encode,
        job_heartbeats.decode,
        "not a heartbeat",
    ),
}

messages = pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES.keys())


@messages
def test_it_has_these_bytes(message: Message) -> None:
    assert message.encode(message.value) == message.data.encode()
    assert message.decode(message.data.encode()) == message.value


@messages
def test_fields_of_a_newer_program_are_ignored(message: Message) -> None:
    fields = json.loads(message.data) | {"more": [1]}
    assert message.decode(json.dumps(fields, indent=1).encode()) == message.value


@messages
def test_a_newer_version_is_named(message: Message) -> None:
    newer = json.dumps(json.loads(message.data) | {"v": 2}).encode()
    with pytest.raises(MalformedEvent, match="version 2, this program reads 1"):
        message.decode(newer)


@messages
def test_a_field_may_be_absent_only_where_older_programs_did_not_write_it(message: Message) -> None:
    for name in (fields := json.loads(message.data)):
        rest = json.dumps({other: value for other, value in fields.items() if other != name}).encode()
        if name in message.absent:
            message.decode(rest)
            continue
        with pytest.raises(MalformedEvent) as raised:
            message.decode(rest)
        assert str(raised.value).startswith(f"{message.error}: {rest[:200]!r} (")
        assert repr(name) in str(raised.value)


@messages
def test_numbers_may_be_written_as_text_and_text_as_numbers(message: Message) -> None:
    fields = json.loads(message.data)
    as_text = {
        n: str(v) if isinstance(v, int) and not isinstance(v, bool) and n != "v" else v for n, v in fields.items()
    }
    assert message.decode(json.dumps(as_text).encode()) == message.value
    if "reason" in fields:
        assert "7" in repr(message.decode(json.dumps(fields | {"reason": 7}).encode()))


@messages
@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'"v"',
        b"1" * 5000,
        b"[" * 100_000,
        b'{"v":1}',
        b'{"v":"1"}',
        b'{"v":1,"at":5,"until":5}',
    ],
)
def test_garbage_is_named(message: Message, data: bytes) -> None:
    with pytest.raises(MalformedEvent) as raised:
        message.decode(data)
    assert str(raised.value).startswith(f"{message.error}: {data[:200]!r} (")


def test_keys_have_these_bytes() -> None:
    assert checkpoints.encode_key(KEY) == KEY_BYTES
    head = KEY_BYTES.decode()[:-1].partition('"incarnation"')
    assert checkpoints.encode_parked_key(KEY).decode() == f'{head[0]}{head[1]}:"id","kind":"parked"{head[2][5:]}}}'
    assert checkpoints.encode_waiting_key(KEY).decode() == f'{head[0]}{head[1]}:"id","kind":"waiting"{head[2][5:]}}}'
    assert checkpoints.encode_skipped_key(SKIPPED) == (
        b'{"destination":"copy","end":9,"incarnation":"id","kind":"skipped","partition":3,"region":"r","start":5,'
        b'"topic":"t"}'
    )
    assert checkpoints.encode_owner_key("id") == b'{"kind":"owner","transactional_id":"id"}'
    assert encode_claim_key(CLAIM) == b'{"id":"one","kind":"group"}'
    assert segment_events.encode_key(Removed(SEGMENT, T0)) == NAME.encode()


@pytest.mark.parametrize("data", [b"", b"\xff", b"null", b"[]", b'"kind"', b"5", b"[" * 100_000])
def test_garbage_is_not_a_key(data: bytes) -> None:
    for decode in (checkpoints.decode_key, checkpoints.kind_of):
        with pytest.raises(MalformedEvent, match="not a checkpoint key"):
            decode(data)
    whole = checkpoints.encode_skipped(SKIPPED)
    with pytest.raises(MalformedEvent, match="not skipped offsets"):
        checkpoints.decode_skipped(data, whole)
    with pytest.raises(MalformedEvent, match="not an owner"):
        checkpoints.decode_owner(data, checkpoints.encode_owner("token"))
    with pytest.raises(MalformedEvent, match="not the claim of a group"):
        decode_claim(data, encode_claim(CLAIM))


def test_the_kind_of_a_key() -> None:
    assert checkpoints.kind_of(KEY_BYTES) == checkpoints.POSITION
    assert checkpoints.kind_of(checkpoints.encode_parked_key(KEY)) == checkpoints.PARKED
    assert checkpoints.kind_of(b'{"kind":"of a newer version"}') == "of a newer version"
