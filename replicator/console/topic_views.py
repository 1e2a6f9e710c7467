"""The pages about flows, topics and partitions as HTML, made of their JSON values. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from replicator.console.charts import incarnation_picture, lag_chart, segments_text, sparkline
from replicator.console.layout import (
    chip,
    data_table,
    definition_list,
    not_read,
    pager,
    problem_list,
    search_form,
    section,
    topic_link,
    topic_path,
    with_query,
)
from replicator.console.markup import Content, Markup, element, fragment
from replicator.console.texts import DASH, age, ago, count, moment, offset, size

View = tuple[str, Sequence[Content]]
"""Title and body of a page."""

_FLOWS = ("egress", "ingress")
_TOPIC_HEAD = (
    ("topic", ""),
    ("state", ""),
    ("flow", "minor"),
    ("region", "minor"),
    ("destination", "minor"),
    ("partitions", "number"),
    ("lag", "number"),
    ("behind", "number"),
    ("problems", "number"),
)


def overview_view(page: Mapping[str, Any]) -> View:
    cards = [_flow_card(flow) for flow in page["flows"]]
    more = page["problem_count"] - len(page["problems"])
    every = f"All {count(page['topic_count'])} topics" if not_read(page, *_FLOWS) is None else "All topics"
    return "Overview", [
        section("Flows", element("div", *cards, class_="cards") if cards else element("p", "None are configured.")),
        section(
            "Problems",
            _problems(page, "There are no problems."),
            element("p", element("a", f"All {count(page['problem_count'])} problems", href="/problems"))
            if more
            else None,
        ),
        section(
            "Topics, the worst first",
            _topic_table(page["topics"], not_read(page, *_FLOWS)),
            element("p", element("a", every, href="/topics")),
        ),
    ]


def topics_view(page: Mapping[str, Any]) -> View:
    other = "name" if page["sort"] == "worst" else "worst"
    sort = "" if page["sort"] == "worst" else page["sort"]
    label = "by name" if other == "name" else "the worst first"
    return "Topics", [
        search_form("/topics", "Part of a topic's name", page["search"]),
        element(
            "p",
            f"{count(page['total'])} topics. " if page["total"] or not_read(page, *_FLOWS) is None else "",
            element("a", f"Sort {label}", href=with_query("/topics", q=page["search"], sort=other)),
        ),
        _topic_table(page["topics"], not_read(page, *_FLOWS)),
        pager(page, "/topics", q=page["search"], sort=sort),
    ]


def topic_view(page: Mapping[str, Any]) -> View:
    region, topic = page["region"], page["topic"]
    if not page["flows"]:
        return f"{topic}", [element("p", f"Topic of region {region}."), not_read(page, *_FLOWS)]
    rows = [
        [
            element("a", one["partition"], href=topic_path(region, topic, one["partition"])),
            chip(one["condition"]),
            one["flow"],
            _incarnation_id(one["path"]),
            offset(one["position"]),
            offset(one["source_end"]),
            fragment(sparkline(one["lag_over_time"]), count(one["lag"])),
            age(one["lag_seconds"]),
            count(one["gaps"]),
            element("span", _proven(one["proven"]), class_="together"),
        ]
        for one in page["partitions"]
    ]
    head = (
        ("partition", "number"),
        ("state", ""),
        ("flow", "minor"),
        ("incarnation", "minor"),
        ("position", "number minor"),
        ("source's end", "number minor"),
        ("lag", "number"),
        ("behind", "number"),
        ("gaps", "number minor"),
        ("verified", "minor"),
    )
    problems = [f"partition {one['partition']}: {what}" for one in page["partitions"] for what in one["problems"]]
    return f"{topic}", [
        element("p", f"Topic of region {region}."),
        section("Flows", _topic_table(page["flows"], not_read(page, *_FLOWS))),
        section("Lag over time", lag_chart(page["lag_over_time"], "Records behind, all partitions")),
        section("Problems", problem_list(problems)) if problems else None,
        section("Partitions", data_table("Partitions", head, rows), pager(page, topic_path(region, topic))),
    ]


def partition_view(page: Mapping[str, Any]) -> View:
    region, topic, partition = page["region"], page["topic"], page["partition"]
    head = element("p", "Partition of topic ", topic_link(region, topic), f" of region {region}.")
    if not page["flows"]:
        return f"{topic} / {partition}", [head, not_read(page, *_FLOWS)]
    return f"{topic} / {partition}", [
        head,
        not_read(page, *_FLOWS),
        *(_partition_flow(flow) for flow in page["flows"]),
        section("Lag over time", lag_chart(page["lag_over_time"], "Records behind")),
        section("Segment map", *_segment_map(page)),
    ]


def problems_view(page: Mapping[str, Any]) -> View:
    return "Problems", [_problems(page, "None."), pager(page, "/problems")]


def _problems(page: Mapping[str, Any], none: str) -> Content:
    """`none`: when everything was read, and there are none."""
    unread = not_read(page, *_FLOWS, "groups", "compaction")
    if page["problems"]:
        return [problem_list(page["problems"]), unread]
    return element("p", none, class_="quiet") if unread is None else unread


def _flow_card(flow: Mapping[str, Any]) -> Markup:
    if not flow["is_read"]:
        return element(
            "article", element("h3", flow["flow"]), element("p", "Not read yet.", class_="quiet"), class_="card"
        )
    group = flow["group"]
    states = [fragment(chip(name), f" {count(number)} ") for name, number in flow["conditions"].items() if number]
    sources = [
        element(
            "li",
            f"{one['region']}: heartbeat {ago(one['heartbeat_age_seconds'])}",
            ""
            if one["records_behind"] is None
            else f", {_at_least(one['records_behind'], one['partitions_unknown'])} records behind",
        )
        for one in flow["sources"]
    ]
    return element(
        "article",
        element("h3", flow["flow"]),
        definition_list(
            ("lag", element("b", _at_least(flow["lag"], flow["lag_unknown"]), class_="large")),
            *([] if flow["lag_seconds"] is None else [("behind", age(flow["lag_seconds"]))]),
            ("topics", count(flow["topics"])),
            ("partitions", count(flow["partitions"])),
            ("members", f"{count(group['members'])} in {group['id']} ({group['state']})"),
        ),
        element("p", *states),
        element("ul", *sources) if sources else None,
        lag_chart(flow["lag_over_time"], f"Records behind, {flow['flow']}"),
        class_="card",
    )


def _topic_table(topics: Sequence[Mapping[str, Any]], unread: Markup | None) -> Markup:
    rows = [
        [
            topic_link(one["region"], one["topic"]),
            chip(one["condition"]),
            one["flow"],
            one["region"],
            one["destination"] or DASH,
            count(one["partitions"]),
            _at_least(one["lag"], one["lag_unknown"]),
            age(one["lag_seconds"]),
            count(one["problems"]),
        ]
        for one in topics
    ]
    return data_table("Topics", _TOPIC_HEAD, rows, unread=unread)


def _at_least(records: int | None, unknown: int) -> str:
    """`unknown`: partitions that are not part of the sum."""
    return f"at least {count(records)}" if records is not None and unknown else count(records)


def _incarnation_id(path: str) -> Content:
    """Its beginning; the whole id is on the partition's page."""
    id_ = path.partition("@")[2]
    return element("span", f"@{id_[:6]}…", title=id_) if len(id_) > 8 else id_ or DASH


def _proven(proof: Mapping[str, Any] | None) -> Content:
    if proof is None:
        return "never"
    return ago(proof["age_seconds"]) if proof["whole"] else chip("not whole")


def _partition_flow(flow: Mapping[str, Any]) -> Markup:
    where = f" to {flow['destination']}" if flow["destination"] else ""
    proof = flow["proven"]
    return section(
        f"{flow['flow']} of {flow['path']}{where}",
        element("p", chip(flow["condition"]), f" {flow['note'] or ''}"),
        definition_list(
            ("position", offset(flow["position"])),
            ("archive's end", offset(flow["archive_end"])),
            ("source's end", offset(flow["source_end"])),
            ("lag", count(flow["lag"])),
            ("behind", age(flow["lag_seconds"])),
            ("recorded gaps", count(flow["gaps"])),
            ("verified", fragment(_proven(proof), "" if proof is None else f" up to {proof['next_offset']}")),
        ),
        problem_list(flow["problems"]) if flow["problems"] else None,
    )


def _segment_map(page: Mapping[str, Any]) -> Sequence[Content]:
    found = page["segment_map"]
    if found is None:
        return [element("p", "The segments are being listed.", class_="quiet pending", role="status")]
    body: list[Content] = []
    if found["error"]:
        body.append(element("p", element("strong", "The segments cannot be listed: "), found["error"], class_="stale"))
    if not found["error"] or found["incarnations"]:
        body.append(element("p", f"Listed {ago(found['age_seconds'])}.", class_="quiet"))
    for one in found["incarnations"]:
        flows = [flow for flow in page["flows"] if flow["path"] == one["path"]]
        marks = [("begin", "archive begins", one["begin"])]
        marks += [("fork", "log forked", at) for at in one["forks"]]
        for flow in flows:
            name = "archived up to" if flow["flow"] == "egress" else f"delivered to {flow['destination']} up to"
            marks += [("position", name, flow["position"]), ("end", "source's end", flow["source_end"])]
        body.append(_incarnation(one, marks, page["topic"]))
    return [*body, _legend()]


def _incarnation(one: Mapping[str, Any], marks: Sequence[tuple[str, str, int | None]], topic: str) -> Markup:
    title = f"{one['path']}" if one["id"] else f"{topic}, first incarnation"
    named = [(name, offset(at)) for _, name, at in marks if at is not None]
    holes = [[f"{h['start']} to {h['end']}", h["kind"], h["reason"] or DASH] for h in one["holes"]]
    segments = [
        [f"{b['start']} to {b['end']}", level["level"], count(b["segments"]), size(b["bytes"]), moment(b["newest_at"])]
        for level in one["levels"]
        for b in level["blocks"]
    ]
    return section(
        title,
        incarnation_picture(one, marks),
        definition_list(*named) if named else None,
        element(
            "p", "Only the first segments of the listing are shown: there are too many. What is missing is not known."
        )
        if one["is_cut"]
        else None,
        data_table("Gaps", (("offsets", ""), ("kind", ""), ("reason", "minor")), holes) if holes else None,
        element("p", f"and {count(one['more_holes'])} more gaps") if one["more_holes"] else None,
        problem_list([f"damaged: {name}: {why}" for name, why in one["damaged"].items()]) if one["damaged"] else None,
        element(
            "details",
            element("summary", f"{segments_text(sum(level['segments'] for level in one['levels']))} as a table"),
            data_table(
                f"Segments of {one['path']}",
                (("offsets", ""), ("level", "number"), ("segments", "number"), ("size", "number"), ("stored", "minor")),
                segments,
            ),
        ),
        level="h3",
    )


def _legend() -> Markup:
    names = (
        ("swatch block", "segments"),
        ("swatch hole retention", "removed by retention"),
        ("swatch hole accepted", "gap, accepted"),
        ("swatch hole loss", "gap, lost"),
        ("swatch hole unrecorded", "missing, not recorded"),
        ("swatch mark position", "position of a flow"),
        ("swatch mark end", "source's end"),
    )
    return element("ul", *(element("li", element("span", class_=kind), name) for kind, name in names), class_="legend")
