from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

import pytest

from infra.runtime.http_server import Request, Response
from replicator.console.access import rules
from replicator.console.history import LagHistory
from replicator.console.job_pages import CompactionRun
from replicator.console.segment_map import PartitionSegments
from replicator.console.site import ConsoleSite, PartitionKey
from replicator.console.state import ConsoleState, FlowKind, GroupsState, ReadPart
from tests.replicator.console.console_states import (
    HOSTILE,
    LATER_ID,
    NOW,
    PARKED,
    GivenStates,
    large_state,
    segments_of,
    small_state,
    state_of,
)
from tests.replicator.console.test_console_markup import Parsed

PATHS = (
    "/",
    "/topics",
    "/topics/us/orders.created",
    "/topics/us/orders.created/0",
    "/topics/eu/orders.shipped",
    "/groups",
    "/compaction",
    "/proofs",
    "/problems",
)


@dataclass
class Given:
    """A `ConsoleSource` of one state."""

    state: ConsoleState = field(default_factory=small_state)
    history: LagHistory = field(default_factory=LagHistory)
    runs: Sequence[CompactionRun] = ()
    is_listed: bool = True
    samples: int = 30
    wanted: list[PartitionKey] = field(default_factory=list)
    reading_since: datetime | None = None

    def __post_init__(self) -> None:
        for at, lags in GivenStates([], samples=self.samples).earlier_lags(self.state.rows):
            self.history.add(at, lags)

    def segments(self, where: PartitionKey) -> PartitionSegments | None:
        self.wanted.append(where)
        return segments_of(where) if self.is_listed else None


def answer(given: Given, path: str, accept: str = "", **headers: str) -> Response:
    site = ConsoleSite(source=given, rules=rules("127.0.0.1", token=None), refresh_seconds=30)
    sent = [("host", "localhost"), ("accept", accept), *headers.items()]
    return site.respond(Request(path=path, headers=sent), NOW)


def page(given: Given, path: str) -> Any:
    found = answer(given, path, "application/json")
    assert (found.status, found.content_type) == (200, "application/json; charset=utf-8")
    return json.loads(found.body)


@pytest.mark.parametrize("path", PATHS)
def test_an_address_has_html_and_json(path: str) -> None:
    given = Given()
    found = answer(given, path, "text/html,application/xhtml+xml,*/*;q=0.8")
    assert (found.status, found.content_type) == (200, "text/html; charset=utf-8")
    text = found.body.decode()
    parsed = Parsed(text)
    assert parsed.tags.count("h1") == 1
    assert parsed.tags.count("script") == 1
    assert "$" not in text  # every place of the frame is filled
    joiner = "&" if "?" in path else "?"
    assert dict(parsed.attributes).get("href") == f"{path}{joiner}format=json"  # the last link
    assert json.loads(answer(given, f"{path}{joiner}format=json", "text/html").body) == page(given, path)


@pytest.mark.parametrize(
    ("under_way", "usual", "late"),
    [(timedelta(seconds=40), 1.0, None), (timedelta(minutes=10), 1.0, 600.0), (timedelta(minutes=10), 300.0, None)],
)
def test_a_reading_that_does_not_end_is_named(under_way: timedelta, usual: float, late: float | None) -> None:
    """Nothing of it is an error, and the page would show the state of then for ever."""
    given = Given(state=replace(small_state(), refresh_seconds=usual), reading_since=NOW - under_way)
    assert page(given, "/")["late_seconds"] == late
    text = answer(given, "/", "text/html").body.decode()
    assert ("No answer for 10m: a cluster or the bucket is slow, or away." in text) == (late is not None)


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        ("", "text/html"),
        ("*/*", "text/html"),
        ("application/json", "application/json"),
        ("Application/JSON;q=0.9, text/html", "application/json"),
        ("text/html, application/json", "text/html"),
        ("image/png", "text/html"),
    ],
)
def test_accept(accept: str, wanted: str) -> None:
    assert answer(Given(), "/", accept).content_type.startswith(wanted)


@pytest.mark.parametrize(
    "path",
    [
        *("/nope", "//", "", "/topics/us", "/topics/us/none", "/topics/us/orders.created/99", "/topics/us/payments/x"),
        *("/topics/us/payments/-1", "/topics/us/payments/1/2", "/topics/us/payments/99999999999999999999"),
        *("/assets/", "/assets/../site.py", "/assets/page.html", "/assets/%2e%2e/site.py", "/topics/%2e%2e/x/1"),
        "/topics/us/payments/²",
    ],
)
def test_there_is_no_such_page(path: str) -> None:
    given = Given()
    assert answer(given, path).status == 404
    assert given.wanted == []


@pytest.mark.parametrize("page_number", ["0", "-1", "x", "99999999999", "7", "²"])
def test_a_page_number_that_is_none(page_number: str) -> None:
    assert page(Given(), f"/topics?page={page_number}")["number"] == 1


@pytest.mark.parametrize("name", ["console.css", "console.js", "icon.svg"])
def test_assets(name: str) -> None:
    found = answer(Given(), f"/assets/{name}")
    assert found.status == 200
    assert b"http" not in found.body.replace(b"http://www.w3.org/2000/svg", b"")  # nothing comes from elsewhere


@pytest.mark.parametrize("path", ["/groups", "/groups?q=%3Cimg", "/problems", "/"])
def test_hostile_names_make_no_element(path: str) -> None:
    state = small_state()
    assert state.groups.value is not None
    regions = [replace(one, problems=(HOSTILE,), unreadable={HOSTILE: HOSTILE}) for one in state.groups.value.regions]
    state = replace(
        state,
        groups=replace(state.groups, value=replace(state.groups.value, regions=tuple(regions)), error=HOSTILE),
    )
    found = Parsed(answer(Given(state), path).body.decode())
    harmless = Parsed(answer(Given(), path).body.decode())
    assert found.tags.count("img") == harmless.tags.count("img") == 1
    assert found.tags.count("script") == 1
    assert {name for name, _ in found.attributes if name.startswith("on")} == set()
    assert HOSTILE in found.data


@pytest.mark.parametrize("search", [HOSTILE, '" autofocus onfocus="x()'])
def test_a_hostile_search_stays_a_value(search: str) -> None:
    found = Parsed(answer(Given(), f"/topics?q={quote(search)}").body.decode())
    assert ("value", search) in found.attributes
    assert found.tags.count("script") == 1
    assert not [name for name, _ in found.attributes if name.startswith("on")]


def test_overview() -> None:
    found = page(Given(), "/")
    assert [flow["flow"] for flow in found["flows"]] == ["egress", "ingress"]
    assert found["flows"][1]["conditions"] == {"problem": 1, "waiting": 1, "running": 10, "over": 0}
    assert found["flows"][1]["sources"][0]["heartbeat_age_seconds"] == 12
    assert [topic["condition"] for topic in found["topics"][:3]] == ["problem", "waiting", "running"]
    assert found["problem_count"] == 2
    assert PARKED in found["problems"][0]
    assert len(found["flows"][0]["lag_over_time"]) == 30


def test_topics_are_searched_and_sorted() -> None:
    given = Given()
    assert {topic["topic"] for topic in page(given, "/topics?q=SHIP")["topics"]} == {"orders.shipped"}
    assert {topic["topic"] for topic in page(given, "/topics?q=eu.pay")["topics"]} == {"payments"}
    names = [topic["topic"] for topic in page(given, "/topics?sort=name")["topics"]]
    assert names == sorted(names)
    assert page(given, "/topics?q=zzz")["topics"] == []


def test_topic() -> None:
    found = page(Given(), "/topics/us/orders.created")
    assert [(one["partition"], one["path"]) for one in found["partitions"]][:2] == [
        (0, "orders.created"),
        (0, f"orders.created@{LATER_ID}"),
    ]
    assert (found["flows"][0]["partitions"], found["flows"][0]["incarnations"]) == (6, 2)
    assert len(found["lag_over_time"]) == 30
    assert len(found["partitions"][3]["lag_over_time"]) == 30


def test_partition_with_its_segments() -> None:
    given = Given()
    found = page(given, "/topics/us/orders.created/0")
    assert set(given.wanted) == {("us", "orders.created", 0)}
    first, later = found["segment_map"]["incarnations"]
    assert [level["level"] for level in first["levels"]] == [2, 1, 0]
    assert [hole["kind"] for hole in first["holes"]] == ["retention", "loss", "accepted", "unrecorded"]
    assert (first["forks"], first["begin"], later["path"]) == ([38_000], 0, f"orders.created@{LATER_ID}")
    text = answer(given, "/topics/us/orders.created/0").body.decode()
    assert all(f'class="hole {kind}"' in text for kind in ("retention", "loss", "accepted", "unrecorded"))


def test_segments_that_are_not_listed_yet() -> None:
    given = Given(is_listed=False)
    assert page(given, "/topics/us/payments/1")["segment_map"] is None
    assert "The segments are being listed." in answer(given, "/topics/us/payments/1").body.decode()


def test_a_part_that_cannot_be_read_is_no_absence() -> None:
    """What was read before stays, with its age and the error."""
    read = small_state()
    why = "the cluster cannot be reached: kafka.us.example:9093"
    state = replace(read, egress=read.egress.failed(why, NOW + timedelta(minutes=5)))
    given = Given(state)
    found = page(given, "/")
    assert found["parts"]["egress"]["error"] == why
    assert found["flows"][0]["partitions"] == 25
    text = Parsed(answer(given, "/").body.decode()).data
    assert f"egress cannot be read: {why} What is shown here was read 0s ago." in text


def test_before_anything_was_read() -> None:
    given = Given(ConsoleState(region="us", started_at=NOW, ingress=ReadPart(is_configured=False)))
    for path in ("/", "/topics", "/groups", "/compaction", "/proofs", "/problems"):
        text = answer(given, path).body.decode()
        assert "The state is being read for the first time." in text
    assert "There are no problems." not in answer(given, "/").body.decode()
    assert page(given, "/")["flows"] == [{"flow": "egress", "is_read": False}]
    failed = ConsoleState(region="us", started_at=NOW, egress=ReadPart[Any].failed(ReadPart(), "no broker", NOW))
    assert "no broker Nothing of it was read yet." in Parsed(answer(Given(failed), "/").body.decode()).data


def unread(error: str = "") -> ConsoleState:
    """Of a console that was started while nothing could be read; without an error, before it read anything."""
    part: ReadPart[Any] = ReadPart(error=error, failed_at=NOW if error else None)
    return ConsoleState(
        region="us",
        started_at=NOW,
        refreshed_at=NOW if error else None,
        egress=part,
        ingress=part,
        groups=part,
        compaction=part,
        drills=part,
    )


ABSENT = (
    "There are no problems.",
    "None.",
    "none.",
    "0 topics",
    "No snapshot of consumer groups has arrived.",
    "groups.sync is off",
    "being listed",
)


@pytest.mark.parametrize("error", ["", "the bucket is away"])
@pytest.mark.parametrize("path", [*PATHS, "/topics/r/orders", "/topics/r/orders/0"])
def test_what_was_never_read_is_no_absence(path: str, error: str) -> None:
    given = Given(unread(error))
    text = Parsed(answer(given, path, "text/html").body.decode()).data
    assert [absent for absent in ABSENT if absent in text] == []
    assert "ot read yet" in text
    parts = ("egress", "ingress", "groups", "compaction", "drills")
    assert page(given, path)["not_read"] == dict.fromkeys(parts, error or "not read yet")
    assert given.wanted == [], "nothing is listed of a partition that is not known"


def test_a_part_that_cannot_be_read_is_a_problem() -> None:
    given = Given(unread("the bucket is away"))
    wanted = [f"{name} cannot be read: the bucket is away" for name in ("egress", "ingress", "groups", "compaction")]
    assert page(given, "/problems")["problems"] == [*wanted, "drills cannot be read: the bucket is away"]
    assert page(given, "/")["problem_count"] == 5
    before = small_state()
    found = page(Given(replace(before, egress=before.egress.failed("no broker", NOW))), "/problems")
    assert found["problems"][0] == "egress cannot be read: no broker"
    assert found["total"] == page(Given(before), "/problems")["total"] + 1
    assert found["not_read"] == {}


def test_a_page_says_which_part_of_it_was_not_read() -> None:
    state = replace(small_state(), egress=ReadPart())
    for path in ("/", "/topics", "/proofs", "/problems", "/topics/us/orders.created"):
        assert "Not read yet: egress." in Parsed(answer(Given(state), path).body.decode()).data
    assert "Not read yet" not in Parsed(answer(Given(state), "/groups").body.decode()).data
    assert (
        answer(Given(replace(state, egress=ReadPart(is_configured=False))), "/topics/us/orders.created").status == 404
    )


def test_a_hostile_topic_that_is_not_known_yet_makes_no_element() -> None:
    found = Parsed(answer(Given(unread()), f"/topics/us/{quote(HOSTILE, safe='')}").body.decode())
    assert (found.tags.count("img"), found.tags.count("script")) == (1, 1)
    assert {name for name, _ in found.attributes if name.startswith("on")} == set()


def test_offsets_of_groups_that_are_not_committed_here() -> None:
    state = replace(small_state(), groups=ReadPart(read_at=NOW, value=GroupsState(regions=(), is_synced=False)))
    assert "groups.sync is off" in answer(Given(state), "/groups").body.decode()


def test_every_answer_about_five_thousand_partitions_is_small() -> None:
    given = Given(large_state(), samples=2)
    assert len(given.state.rows) == 5_000
    for path in (*("/", "/topics", "/topics?page=3", "/proofs", "/problems", "/groups"), "/topics/eu/topic-0200"):
        for accept in ("text/html", "application/json"):
            assert len(answer(given, path, accept).body) < 500_000


def test_one_topic_of_five_thousand_partitions() -> None:
    given = Given(large_state(topics=2), samples=2)
    found = page(given, "/topics/us/topic-0000?page=25")
    assert (found["total"], found["pages"], len(found["partitions"])) == (2_500, 25, 100)
    assert len(answer(given, "/topics/us/topic-0000").body) < 500_000


def test_no_flow_at_all() -> None:
    state = state_of([], [])
    assert page(Given(state), "/")["topics"] == []
    assert [kind for kind, _ in state.flows] == list(FlowKind)
