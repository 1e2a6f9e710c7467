"""Contradictions between several files."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replicator.config import Config, from_mapping
from replicator.config.across import between_files, notes_between


def file(name: str, region: str, servers: str = "", **sections: Any) -> Config:
    """A file of one region, with its own bucket and queue."""
    tables = {
        "region": region,
        "kafka": {"bootstrap.servers": servers or f"kafka.{region}:9092"},
        "s3": {"bucket": f"bucket-{region}"},
        "sqs": {"queue": f"queue-{region}"},
    }
    return from_mapping(tables | sections, source=name)


def ingress(*sources: tuple[str, str, str], **settings: Any) -> dict[str, Any]:
    return {
        "sources": [{"region": region, "topic": topic, "destination_topic": to} for region, topic, to in sources]
    } | settings


def egress(*topics: str, **settings: Any) -> dict[str, Any]:
    return {"topics": {topic: {} for topic in topics}} | settings


OTHERS: dict[str, str] = {"group_id": "g2", "checkpoint_topic": "c2", "segment_events_topic": "e2"}


def test_files_of_two_clusters_share_nothing() -> None:
    one = file("one", "a", ingress=ingress(("c", "orders", "copy")))
    assert between_files([one, file("two", "b", ingress=ingress(("c", "orders", "copy")))]) == []


def test_two_processes_of_one_ingress_may_have_a_file_each() -> None:
    into, out_of = ingress(("b", "orders", "copy")), egress("x")
    one = file("one", "a", ingress=into, egress=out_of)
    other = file("two", "a", metrics={"listen": "127.0.0.1:9465"}, ingress=into, egress=out_of)
    assert between_files([one, other]) == []


@pytest.mark.parametrize("same", ["region", "one of the servers"])
def test_each_shared_name_is_reported_with_its_remedy(same: str) -> None:
    region, servers = ("a", "x:1") if same == "region" else ("b", "y:1, kafka.a:9092")
    one = file("one", "a", ingress=ingress(("c", "^orders.*", "{topic}.copy")))
    two = file("two", region, servers, ingress=ingress(("c", "orders", "orders.copy")), s3={"bucket": "another"})
    problems = between_files([one, two])
    queue = problems[4:]  # of one name in one region, and not of one group either: their buckets differ
    assert [line.partition(" are one queue, ")[0] for line in queue] == (
        ["one: sqs.queue and two: sqs.queue"] if same == "region" else []
    )
    assert [line.partition(": ")[0] for line in problems[:4]] == ["one and two"] * 4
    assert "ingress.group_id 'replicator.ingress' is the same in both files" in problems[0]
    assert "set another group_id in one of them" in problems[0]
    assert "ingress.checkpoint_topic 'replicator.checkpoint' is the same in both files" in problems[1]
    assert "ingress.segment_events_topic" in problems[2]
    assert "'orders.copy' receives orders of c by one file and orders of c by the other" in problems[3]
    assert "set another destination_topic" in problems[3]


@pytest.mark.parametrize("region", ["a", "b"])
def test_two_deliveries_need_a_queue_each(region: str) -> None:
    queue = {"queue": "events", "endpoint_url": "http://sqs:1"}
    one = file("one", "a", ingress=ingress(("c", "orders", "copy")), sqs=queue)
    two = file("two", region, ingress=ingress(("c", "payments", "other"), **OTHERS), sqs=queue)
    [problem] = between_files([one, two])
    assert problem.startswith("one: sqs.queue and two: sqs.queue are one queue, 'events', of two deliveries")
    assert "a queue of its own" in problem
    [problem] = between_files([one, two], {"two": "clusters.{}".format})
    assert problem.startswith("one: sqs.queue and two: clusters.sqs.queue are")
    for more in ({"region_name": "x"}, {"endpoint_url": "http://sqs:2"}, {"queue": "others"}):
        apart = file("two", region, ingress=ingress(("c", "payments", "other"), **OTHERS), sqs=queue | more)
        assert between_files([one, apart]) == []
    reader = file("two", region, egress=egress("x"), sqs=queue)
    assert between_files([one, reader]) == []


AWS = "https://sqs.us-east-1.amazonaws.com/123456789012/events"


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("by_url", "by_name", "is_one"),
    [
        ({"queue": AWS}, {"queue": "events", "region_name": "us-east-1"}, True),
        ({"queue": AWS}, {"queue": "events"}, True),  # as far as the files tell
        ({"queue": AWS}, {"queue": "events", "region_name": "us-east-2"}, False),
        ({"queue": AWS}, {"queue": "event", "region_name": "us-east-1"}, False),
        ({"queue": AWS}, {"queue": "events", "endpoint_url": "http://sqs:1"}, False),
        ({"queue": AWS}, {"queue": "events", "endpoint_url": "https://sqs.us-east-1.amazonaws.com"}, True),
        ({"queue": AWS}, {"queue": "events", "endpoint_url": "https://sqs.eu-west-1.amazonaws.com"}, False),
        (
            {"queue": AWS},
            {"queue": "events", "endpoint_url": "https://vpce-1-a.sqs.us-east-1.vpce.amazonaws.com"},
            True,
        ),
        ({"queue": AWS}, {"queue": AWS}, True),
        ({"queue": AWS}, {"queue": AWS.replace("123456789012", "210987654321")}, False),
        ({"queue": AWS}, {"queue": AWS.replace("sqs.us-east-1.", "queue.")}, True),
        ({"queue": AWS}, {"queue": AWS.replace("sqs.us-east-1.", "us-east-1.queue.")}, True),
        ({"queue": "http://sqs:1/000000000000/events"}, {"queue": "events", "endpoint_url": "http://SQS:1/"}, True),
        ({"queue": "http://sqs:1/000000000000/events"}, {"queue": "events", "endpoint_url": "http://sqs:2"}, False),
        ({"queue": "http://sqs:1/000000000000/events"}, {"queue": "events"}, False),
        (
            {"queue": "http://sqs:1/000000000000/events"},
            {"queue": "http://sqs:1/000000000000/events", "region_name": "us-east-2"},
            True,
        ),
    ],
)
def test_a_queue_by_its_url_and_by_its_name(
    by_url: dict[str, str], by_name: dict[str, str], *, is_one: bool, is_first: bool
) -> None:
    queues = (by_url, by_name) if is_first else (by_name, by_url)
    one = file("one", "a", ingress=ingress(("c", "orders", "copy")), sqs=queues[0])
    two = file("two", "b", ingress=ingress(("c", "payments", "other"), **OTHERS), sqs=queues[1])
    found = between_files([one, two])
    if not is_one:
        assert found == []
        return
    [message] = found
    assert message.startswith("one: sqs.queue and two: sqs.queue are one queue, ")
    if by_url["queue"] != by_name["queue"]:
        assert repr(by_url["queue"]) in message
        assert repr(by_name["queue"]) in message
    is_certain = "://" in by_name["queue"]
    assert ("if they are two, name both by URL" in message) != is_certain


def test_two_processes_of_one_ingress_may_name_its_queue_differently() -> None:
    into = ingress(("b", "orders", "copy"))
    one = file("one", "a", ingress=into, sqs={"queue": AWS})
    other = file("two", "a", ingress=into, sqs={"queue": "events", "region_name": "us-east-1"})
    assert between_files([one, other]) == []
    [first, *_] = between_files([one, file("two", "a", ingress=into, sqs={"queue": "others"})])
    assert "ingress.group_id" in first


def test_a_file_of_its_own_names_is_fine() -> None:
    one = file("one", "a", ingress=ingress(("c", "orders", "copy")))
    two = file(
        "two", "a", ingress=ingress(("c", "payments", "other"), **OTHERS), s3={"bucket": "another"}, sqs={"queue": "q2"}
    )
    assert between_files([one, two]) == []


def test_internal_topics_are_neither_destinations_nor_sources() -> None:
    one = file("one", "a", ingress=ingress(("c", "orders", "c2")))
    two = file("two", "a", ingress=ingress(("c", "payments", "other"), **OTHERS), egress=egress("unrelated"))
    archives = file("three", "a", egress=egress("^[ce]2", group_id="g3"))
    problems = between_files([one, two, archives])
    assert any("'c2' is an internal topic of one file and a destination of the other" in line for line in problems)
    assert any("egress.topics of one file selects c2, e2" in line for line in problems)


def test_groups_of_egress() -> None:
    one, two = file("one", "a", egress=egress("x")), file("two", "a", egress=egress("y"))
    assert "egress.group_id 'replicator.egress' is the same in both files" in between_files([one, two])[0]
    two = file(
        "two", "a", egress=egress("y", group_id="g"), ingress=ingress(("b", "z", "w"), group_id="replicator.egress")
    )
    assert (
        "'replicator.egress' is egress.group_id of one file and ingress.group_id of the other"
        in between_files([one, two])[0]
    )


def ring(**of_b: Any) -> list[Config]:
    """Two files that deliver everything to each other, by its name."""
    both: dict[str, Any] = {"egress": egress("^.*"), "s3": {"bucket": "a"}}
    one = file("a.toml", "a", **both, ingress=ingress(("b", "^.*", "{topic}")))
    return [one, file("b.toml", "b", **both | {"ingress": ingress(("a", "^.*", "{topic}"))} | of_b)]


@pytest.mark.parametrize(
    ("of_b", "why"),
    [
        ({"ingress": ingress(("a", "^.*", "{topic}"), create_topics=False)}, "b.toml: ingress.create_topics = false"),
        ({"egress": egress("^.*", heartbeat_interval="0s")}, 'b.toml: egress.heartbeat_interval = "0s"'),
        (
            {"ingress": {"sources": [{"region": "a", "topic": "^.*", "ignore_lineage": True}]}},
            "b.toml: ignore_lineage = true of a source",
        ),
    ],
)
def test_a_loop_names_files_setting_and_remedy(of_b: dict[str, Any], why: str) -> None:
    files = ring(**of_b)
    [problem] = between_files(files)
    assert "ingress.sources[0].topic: delivers x of " in problem
    assert "(a.toml)" in problem
    assert "(b.toml)" in problem
    assert "for ever" in problem
    assert why in problem
    assert "exclude" in problem
    assert "from [egress] of" in problem
    assert notes_between(files) == []


def test_a_loop_that_lineage_ends_is_a_note() -> None:
    assert between_files(ring()) == []
    [note] = notes_between(ring())
    assert note.startswith("b.toml: ingress.sources[0].topic: delivers x of a as x (b.toml), then x of b as x (a.toml)")
    assert "for ever" not in note
    assert "exists in both clusters before" in note


def test_a_topic_delivered_into_itself_is_a_loop_whatever_other_loops_there_are() -> None:
    archives = file("c.toml", "c", "kafka.a:9092", ingress=ingress(("a", "^.*", "{topic}"), **OTHERS))
    found = [line for line in between_files([*ring(), archives]) if "for ever" in line]
    assert any("c.toml" in line and "the same topic" in line for line in found)


def test_two_ledgers_of_one_cluster_hide_the_lineage() -> None:
    more = file("c.toml", "b", egress=egress("^y"), ingress=ingress(("d", "y", "z"), **OTHERS, ledger_topic="mine"))
    assert any("c.toml: ingress.ledger_topic is mine" in line for line in between_files([*ring(), more]))


NAMES = st.sampled_from(["x", "y", "z", "replicator.checkpoint2"])
FILE = st.fixed_dictionaries(
    {
        "region": st.sampled_from("ab"),
        "servers": st.sampled_from(["s1:1", "s2:1", "s1:1,s3:1"]),
        "bucket": st.sampled_from(["b1", "b2"]),
        "group": st.sampled_from(["g1", "g2"]),
        "checkpoints": st.sampled_from(["c1", "c2"]),
        "topic": st.sampled_from(["x", "^x.*", "^.*"]),
        "to": st.sampled_from(["{topic}.1", "{topic}.2"]),
    }
)


@given(st.lists(FILE, min_size=2, max_size=3))
@settings(deadline=None)
def test_the_order_of_the_files_does_not_matter(tables: list[dict[str, str]]) -> None:
    def made(n: int, t: dict[str, str]) -> Config:
        to = t["to"].replace("{topic}", "x") if t["topic"] == "x" else t["to"]
        settings = ingress(("c", t["topic"], to), group_id=t["group"], checkpoint_topic=t["checkpoints"])
        return file(str(n), t["region"], t["servers"], s3={"bucket": t["bucket"]}, ingress=settings)

    files = [made(n, t) for n, t in enumerate(tables)]
    forward, backward = between_files(files), between_files(files[::-1])
    assert len(forward) == len(backward)
    alone = [one for one in files if sum(between_files([one, other]) != [] for other in files if other is not one) == 0]
    for one in alone:
        assert not any(one.source in line.partition(": ")[0].split(" and ") for line in forward if len(files) == 2)
