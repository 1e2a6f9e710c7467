from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from formats.control.keys import sent_probe_key
from formats.messages.s3_notifications import Parsed, ProbeEvent, parse
from formats.messages.segment_events import Created, Removed
from formats.segment import OffsetRange, Segment, SegmentInfo, SourcePartition, format_key
from tests.examples import property_examples

SEGMENT = Segment(SourcePartition("eu-west-1", "sensor.events", 3, "AbC_-9"), 1, OffsetRange(100, 250))
KEY = format_key("my data", SEGMENT)
AT = datetime(2030, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
TIME = "2030-01-02T03:04:05.678Z"
CREATED = Created(SegmentInfo(SEGMENT, 1234, AT))
REMOVED = Removed(SEGMENT, AT)


def record(
    name: str = "ObjectCreated:Put", key: str = KEY, *, size: object = 1234, bucket: str = "b"
) -> dict[str, Any]:
    """A record as S3 sends it, without the unused parts."""
    item: dict[str, Any] = {"key": quote_plus(key, safe="/"), "eTag": "0" * 32, "sequencer": "0055AED6DCD90281E5"}
    if size is not None:
        item["size"] = size
    return {
        "eventVersion": "2.1",
        "eventSource": "aws:s3",
        "awsRegion": "eu-west-1",
        "eventTime": TIME,
        "eventName": name,
        "s3": {"s3SchemaVersion": "1.0", "bucket": {"name": bucket, "arn": f"arn:aws:s3:::{bucket}"}, "object": item},
    }


def s3(*records: object) -> str:
    return json.dumps({"Records": records})


def sns(message: str) -> str:
    return json.dumps({"Type": "Notification", "MessageId": "m", "TopicArn": "arn:aws:sns:x", "Message": message})


def bridge(kind: str = "Object Created", key: str = KEY, **detail: object) -> str:
    item: dict[str, object] = {"key": key, "etag": "0" * 32, "sequencer": "00"}
    if kind == "Object Created":
        item["size"] = 1234
    return json.dumps(
        {
            "version": "0",
            "detail-type": kind,
            "source": "aws.s3",
            "time": "2030-01-02T03:04:05.678Z",
            "detail": {"version": "0", "bucket": {"name": "b"}, "object": item, **detail},
        }
    )


def read(
    body: str, *, prefix: str = "my data", regions: frozenset[str] = frozenset({"eu-west-1"}), bucket: str = ""
) -> Parsed:
    return parse(body, prefix=prefix, regions=regions, bucket=bucket)


@pytest.mark.parametrize("scheme", ["", "s3:"])
@pytest.mark.parametrize("kind", ["Put", "Post", "Copy", "CompleteMultipartUpload"])
def test_created(scheme: str, kind: str) -> None:
    assert read(s3(record(f"{scheme}ObjectCreated:{kind}"))) == Parsed(events=(CREATED,))


@pytest.mark.parametrize("scheme", ["", "s3:"])
@pytest.mark.parametrize(
    "name",
    [
        "ObjectRemoved:Delete",
        "ObjectRemoved:DeleteMarkerCreated",
        "LifecycleExpiration:Delete",
        "LifecycleExpiration:DeleteMarkerCreated",
    ],
)
@pytest.mark.parametrize("size", [None, 0])
def test_removed(scheme: str, name: str, size: int | None) -> None:
    assert read(s3(record(f"{scheme}{name}", size=size))) == Parsed(events=(REMOVED,))


@pytest.mark.parametrize(
    "name",
    ["ObjectRestore:Completed", "s3:ReducedRedundancyLostObject", "ObjectTagging:Put", "ObjectRemoved:NoSuchThing", ""],
)
def test_other_kinds_are_understood(name: str) -> None:
    assert read(s3(record(name))) == Parsed(ignored=1)


def test_the_documented_encodings() -> None:
    assert "my+data/eu-west-1/sensor.events%40AbC_-9" in s3(record())  # this is what the tests above are read from
    plain = s3(record()).replace("%40", "@").replace("+", "%20")
    assert read(plain) == Parsed(events=(CREATED,))


@pytest.mark.parametrize(
    "wrap", [lambda body: body, sns, lambda body: sns(sns(body))], ids=["raw", "sns", "sns in sns"]
)
@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (s3(record(), record("ObjectRemoved:Delete", size=None)), Parsed(events=(CREATED, REMOVED))),
        (s3(record(), record()), Parsed(events=(CREATED, CREATED))),
        (s3(), Parsed()),
        (json.dumps({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "b"}), Parsed(test_event=True)),
        (bridge(), Parsed(events=(CREATED,))),
        (bridge(reason="CompleteMultipartUpload"), Parsed(events=(CREATED,))),
        (bridge("Object Deleted", reason="DeleteObject"), Parsed(events=(REMOVED,))),
        (
            bridge("Object Deleted", reason="Lifecycle Expiration", **{"deletion-type": "Permanently Deleted"}),
            Parsed(events=(REMOVED,)),
        ),
        (bridge("Object Deleted", **{"deletion-type": "Delete Marker Created"}), Parsed(events=(REMOVED,))),
        (bridge("Object Tags Added"), Parsed(ignored=1)),
        (bridge("Object Restore Completed"), Parsed(ignored=1)),
    ],
)
def test_envelopes(wrap: Any, body: str, wanted: Parsed) -> None:
    assert read(wrap(body)) == wanted
    assert wanted.is_valid


def test_eventbridge_keys_are_plain() -> None:
    assert read(bridge(key="my data/eu-west-1/a+b/0")).problems  # "+" is a plus there: not a topic name
    assert read(bridge(key="my+data/eu-west-1/t/0")) == Parsed(foreign=1)


@pytest.mark.parametrize(
    "key",
    [
        "other/eu-west-1/t/0/0/x",
        "my data",
        "my datax/eu-west-1/t",
        "my data/us-east-1/sensor.events/0/0/00000000000000000000-00000000000000000001",
        "my data/eu-west-1/_control/v1/places/t",
        "my data/",
        "x" * 1024,
    ],
)
@pytest.mark.parametrize(
    "make", [lambda key: s3(record(key=key, size="?")), lambda key: bridge(key=key)], ids=["s3", "bridge"]
)
def test_foreign_keys_are_understood(make: Any, key: str) -> None:
    assert read(make(key)) == Parsed(foreign=1)


def test_another_bucket_is_foreign() -> None:
    assert read(s3(record()), bucket="b") == read(bridge(), bucket="b") == Parsed(events=(CREATED,))
    assert read(s3(record()), bucket="c") == read(bridge(), bucket="c") == Parsed(foreign=1)


def test_no_prefix() -> None:
    key = format_key("", SEGMENT)
    assert read(s3(record(key=key)), prefix="") == Parsed(events=(CREATED,))
    assert read(s3(record(key="eu-west-2/x")), prefix="") == Parsed(foreign=1)


def test_a_malformed_part_spoils_the_message_but_not_the_events_beside_it() -> None:
    parsed = read(s3(record(), record(key="my data/eu-west-1/t/0/0/1-2"), record(key="q"), record(size=None)))
    assert parsed.events == (CREATED,)
    assert parsed.foreign == 1
    assert [problem.split(":")[0] for problem in parsed.problems] == ["record 1", "record 3"]
    assert "my data/eu-west-1/t/0/0/1-2" in parsed.problems[0]
    assert not parsed.is_valid


def without(*path: str) -> dict[str, Any]:
    whole = record()
    inner = whole
    for name in path[:-1]:
        inner = inner[name]
    del inner[path[-1]]
    return whole


@pytest.mark.parametrize(
    "body",
    [
        "",
        "not json",
        "null",
        "[]",
        "7",
        "NaN",
        "{}",
        '{"Records": {}}',
        '{"Event": "s3:OtherEvent"}',
        '{"Type": "SubscriptionConfirmation", "Message": "…"}',
        sns("not json"),
        '{"Type": "Notification", "Message": {"Records": []}}',
        '{"detail-type": "Object Created"}',
        bridge().replace("aws.s3", "aws.ec2"),
        bridge().replace("1234", "-1"),
        s3(7),
        s3(None),
        s3(without("eventName")),
        s3(without("eventTime")),
        s3(without("s3", "object", "key")),
        s3(without("s3", "object")),
        s3(without("s3")),
        s3(record() | {"eventSource": "aws:ses"}),
        s3(record() | {"eventName": 7}),
        s3(record() | {"eventTime": "2030-01-02T03:04:05"}),
        s3(record() | {"eventTime": "yesterday"}),
        s3(record() | {"eventTime": "0001-01-01T00:00:00+14:00"}),
        s3(record() | {"eventTime": 1893553445}),
        s3(record(size=-1)),
        s3(record(size=True)),
        s3(record(size=1.5)),
        s3(record(size="1234")),
        s3(record(size=2**63)),
        s3(record(size=float("nan"))),
        s3(record()).replace("1234", "1" * 5000),
        s3(record(key=f"my data/eu-west-1/t/0/0/{2**63:020d}-{2**63:020d}")),
        s3(record()).replace("%40", "%FF"),  # not UTF-8
        s3(record()).replace("AbC", "\\ud800"),  # half a character
        "[" * 100_000,
        '{"Records": [' + "[" * 100_000 + "]" * 100_000 + "]}",
        sns(sns(sns(sns(s3(record()))))),
    ],
    ids=lambda body: body[:40],
)
def test_malformed(body: str) -> None:
    parsed = read(body)
    assert parsed.events == ()
    assert len(parsed.problems) == 1
    parsed.problems[0].encode()
    assert len(parsed.problems[0]) < 700


# --- any text --------------------------------------------------------------------------------------------------------

WORDS = [
    "Records",
    "Event",
    "s3:TestEvent",
    "Type",
    "Notification",
    "Message",
    "detail-type",
    "detail",
    "object",
    "key",
]
WORDS += ["Object Created", "Object Deleted", "eventName", "ObjectCreated:Put", "ObjectRemoved:Delete", "s3", "size"]
WORDS += [
    "eventTime",
    "time",
    TIME,
    "bucket",
    "name",
    quote_plus(KEY),
    KEY,
    "source",
    "aws.s3",
    "eventSource",
    "aws:s3",
]
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(WORDS)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS) | st.text(max_size=3), inner),
    max_leaves=15,
)


@st.composite
def bent(draw: st.DrawFn) -> str:
    """A valid message with one value replaced by any JSON."""
    message = json.loads(
        draw(st.sampled_from([s3(record(), record("ObjectRemoved:Delete")), bridge(), sns(s3(record()))]))
    )
    inner: Any = message
    while True:
        names = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        name = draw(st.sampled_from(names))
        if not isinstance(inner[name], dict | list) or not inner[name] or draw(st.booleans()):
            inner[name] = draw(JSON)
            return json.dumps(message)
        inner = inner[name]


@property_examples()
@given(st.text() | JSON.map(json.dumps) | bent() | bent().map(sns))
@example('{"Records": [' + "9" * 5000 + "]}")
def test_any_text_is_parsed_without_an_error(body: str) -> None:
    parsed = read(body)
    assert parsed.is_valid == (not parsed.problems)
    for problem in parsed.problems:
        problem.encode()
    for event in parsed.events:
        assert event.segment.source.region == "eu-west-1"


@given(
    st.lists(
        st.sampled_from([(record(), CREATED), (record("ObjectRemoved:Delete"), REMOVED), (record(key="x"), None)])
    ),
    st.sampled_from([lambda body: body, sns]),
)
def test_events_keep_their_order(parts: list[tuple[object, object]], wrap: Any) -> None:
    parsed = read(wrap(s3(*(part for part, _ in parts))))
    assert list(parsed.events) == [event for _, event in parts if event is not None]
    assert parsed.foreign == sum(event is None for _, event in parts)
    assert parsed.is_valid


@pytest.mark.parametrize(
    ("size", "shown"), [(-5, "-5"), ("5 é", r"'5 \xe9'"), ([1] * 1_000, "[" + "1, " * 66 + "1")], ids=str
)
def test_a_problem_shows_the_beginning_of_what_is_wrong(size: object, shown: str) -> None:
    (problem,) = read(s3(record(size=size))).problems
    assert problem.endswith(f"not a size: {shown}")


def test_a_value_nested_too_deeply_to_print_is_reported_as_a_problem() -> None:
    """Up to what can just be read: that depends on the interpreter, and showing it takes place deeper in the stack."""
    for depth in range(sys.getrecursionlimit()):
        body = s3(record(size=0)).replace('"size": 0', f'"size": {"[" * depth}0{"]" * depth}')
        assert len(read(body).problems) == bool(depth)


@pytest.mark.parametrize("make", [lambda key: s3(record(key=key)), lambda key: bridge(key=key)], ids=["s3", "bridge"])
def test_a_probe_of_the_doctor(make: Any) -> None:
    key = sent_probe_key("my data", "eu-west-1", "0f")
    assert read(make(key)) == Parsed(probes=(ProbeEvent("0f", AT),))
    assert read(make(key), regions=frozenset({"us-east-1"})) == Parsed(foreign=1)
    assert read(make(f"{key}/more")) == Parsed(foreign=1)
