"""Messages between a task and the driver: cut anywhere, of any content, and not theirs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import MalformedEvent
from infra.runtime.workers.messages import (
    HEAD_BYTES,
    MEMBER_BYTES,
    UNPROVEN_BYTES,
    AttemptDrained,
    AttemptFailed,
    ChangedSettings,
    Frames,
    Hello,
    Message,
    Order,
    PackedMetrics,
    State,
    Welcome,
    changed_settings,
    decode,
    encode,
    is_proven,
    metrics_text,
    packed_metrics,
    pickled_settings,
    proof_of,
)

NUMBERS = st.integers(-(2**40), 2**40)
TEXTS = st.text(max_size=60)
HELLOS = st.builds(
    Hello, job=NUMBERS, task=NUMBERS, attempt=NUMBERS, host=TEXTS, pid=NUMBERS, instance=TEXTS, proof=TEXTS
)
MESSAGES: st.SearchStrategy[Message] = st.one_of(
    st.builds(Welcome, nonce=TEXTS),
    HELLOS,
    st.builds(Order, what=st.sampled_from(["wait", "run", "ping", "metrics", "move", "end"]), reason=TEXTS),
    st.builds(ChangedSettings, pickled=TEXTS, proof=TEXTS),
    st.builds(State, health=TEXTS),
    st.builds(PackedMetrics, accept=TEXTS, packed=TEXTS),
    st.builds(AttemptFailed, error=TEXTS),
    st.just(AttemptDrained()),
)
HELLO = Hello(job=1, task=0, attempt=7, host="worker-1", pid=4711, instance="replicator.egress-0")


@given(st.lists(MESSAGES, max_size=8), st.data())
def test_messages_arrive_whole_wherever_the_bytes_are_cut(messages: list[Message], data: st.DataObject) -> None:
    sent = b"".join(map(encode, messages))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(sent)), max_size=20)))
    frames = Frames(MEMBER_BYTES)
    received = [m for a, b in zip([0, *cuts], [*cuts, len(sent)], strict=True) for m in frames.feed(sent[a:b])]
    assert received == messages


@given(st.binary(max_size=200))
def test_garbage_is_a_message_or_refused(garbage: bytes) -> None:
    frames = Frames()
    try:
        frames.feed(garbage)
        frames.feed(garbage)
    except MalformedEvent:
        return


@given(st.binary(max_size=60) | MESSAGES.map(encode).map(lambda sent: sent[HEAD_BYTES:-1]))
def test_no_other_error_leaves_the_decoder(body: bytes) -> None:
    try:
        decode(body)
    except MalformedEvent:
        return


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'{"kind": []}',
        b'{"kind": "unknown"}',
        b'{"kind": "order", "what": "format"}',
        b'{"kind": "order", "what": 1}',
        b'{"kind": "welcome"}',
        b'{"kind": "welcome", "nonce": "a", "more": "b"}',
        b'{"kind": "failed", "error": true}',
        b"[" * 100_000,
    ],
)
def test_refused(body: bytes) -> None:
    with pytest.raises(MalformedEvent):
        decode(body)


@given(TEXTS, TEXTS)
def test_metrics_are_packed(accept: str, text: str) -> None:
    packed = packed_metrics(accept, text)
    assert (packed.accept, metrics_text(packed)) == (accept, text)


def test_the_metrics_of_thousands_of_partitions_are_a_small_message() -> None:
    text = "".join(f'replicator_egress_records_total{{topic="t",partition="{n}"}} {n}.0\n' for n in range(100_000))
    assert len(encode(packed_metrics("", text))) < len(text) / 4


@pytest.mark.parametrize("packed", ["no base64", "AAAA", packed_metrics("", "text").packed[:8]])
def test_metrics_that_cannot_be_unpacked(packed: str) -> None:
    with pytest.raises(MalformedEvent, match="metrics that cannot be unpacked"):
        metrics_text(PackedMetrics(accept="", packed=packed))


@pytest.mark.parametrize("length", [0, UNPROVEN_BYTES + 1, 2**32 - 1])
def test_a_length_beyond_the_limit_is_refused_before_its_bytes_arrive(length: int) -> None:
    with pytest.raises(MalformedEvent, match=str(length)):
        Frames().feed(length.to_bytes(HEAD_BYTES, "big"))


@given(HELLOS, TEXTS, TEXTS)
def test_only_the_secret_proves(hello: Hello, secret: str, nonce: str) -> None:
    proven = replace(hello, proof=proof_of(secret, nonce, hello))
    assert is_proven(secret, nonce, proven)
    assert not is_proven(f"{secret}x", nonce, proven)
    assert not is_proven(secret, f"{nonce}x", proven), "recorded from another connection"


@pytest.mark.parametrize(
    "other",
    [
        {"job": 2},
        {"task": 1},
        {"attempt": 8},
        {"host": "worker-2"},
        {"pid": 1},
        {"instance": "replicator.egress-1"},
    ],
)
def test_a_proof_holds_for_its_attempt_only(other: dict[str, object]) -> None:
    proven = replace(HELLO, proof=proof_of("secret", "nonce", HELLO))
    assert not is_proven("secret", "nonce", replace(proven, **other))  # type: ignore[arg-type]


@given(st.binary(max_size=60), TEXTS, TEXTS)
def test_settings_are_loaded_only_as_the_driver_sent_them(pickled: bytes, secret: str, nonce: str) -> None:
    sent = changed_settings(secret, nonce, pickled)
    assert pickled_settings(secret, nonce, sent) == pickled
    other = changed_settings(secret, nonce, pickled + b"x")
    for forged, its_nonce, its_secret in (
        (replace(sent, pickled=other.pickled), nonce, secret),
        (sent, f"{nonce}x", secret),
        (sent, nonce, f"{secret}x"),
        (replace(sent, proof=""), nonce, secret),
    ):
        with pytest.raises(MalformedEvent, match="without the proof"):
            pickled_settings(its_secret, its_nonce, forged)
