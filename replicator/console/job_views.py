"""The pages about compaction, consumer groups, proofs and drills as HTML, made of their JSON values. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from replicator.console.layout import chip, data_table, not_read, pager, problem_list, search_form, section, topic_link
from replicator.console.markup import Content, element
from replicator.console.texts import DASH, age, ago, count, moment, offset
from replicator.console.topic_views import View


def compaction_view(page: Mapping[str, Any]) -> View:
    if not page["is_configured"]:
        return "Compaction", [element("p", "The configuration has no [compaction].")]
    jobs = [
        [
            one["name"],
            one["region"],
            one["cron"] or "by hand",
            one["timezone"] if one["cron"] else DASH,
            moment(one["last_ended_at"]),
            moment(one["next_at"]),
        ]
        for one in page["jobs"]
    ]
    runs = [
        [
            one["region"],
            chip("running" if one["running"] else "ended"),
            one["owner"],
            moment(one["first_seen_at"]),
            moment(one["last_seen_at"]),
        ]
        for one in page["runs"]
    ]
    processes = [[one["owner"], ", ".join(one["jobs"]), moment(one["until"])] for one in page["processes"]]
    damaged = [[one["segment"], one["reason"], moment(one["found_at"])] for one in page["quarantined"]]
    unread = not_read(page, "compaction")
    return "Compaction", [
        section(
            "Jobs",
            data_table(
                "Jobs",
                (
                    ("job", ""),
                    ("region", ""),
                    ("cron", ""),
                    ("zone", "minor"),
                    ("last whole run", ""),
                    ("next run", ""),
                ),
                jobs,
                unread=unread,
            ),
        ),
        section(
            "Runs",
            element("p", "Runs that this console saw since it was started.", class_="quiet"),
            data_table(
                "Runs",
                (("region", ""), ("state", ""), ("process", "minor"), ("first seen", ""), ("last seen", "minor")),
                runs,
                unread=unread,
            ),
        ),
        section(
            "Processes that run jobs by the clock",
            data_table(
                "Processes",
                (("process", ""), ("jobs", ""), ("heartbeat holds until", "minor")),
                processes,
                unread=unread,
            ),
        ),
        section(
            "Damaged segments",
            data_table(
                "Damaged segments",
                (("segment", ""), ("reason", ""), ("found", "minor")),
                damaged,
                unread=unread,
            ),
        ),
    ]


def groups_view(page: Mapping[str, Any]) -> View:
    if (unread := not_read(page, "groups")) is not None:
        return "Consumer groups", [unread]
    regions = [
        section(
            f"Groups of {one['region']}",
            element("p", f"{count(one['groups'])} groups in the newest snapshot, {ago(one['age_seconds'])}."),
            problem_list([*one["problems"], *(f"{name}: {why}" for name, why in one["unreadable"].items())])
            if one["problems"] or one["unreadable"]
            else None,
        )
        for one in page["regions"]
    ]
    if not regions:
        regions = [element("p", "No snapshot of consumer groups has arrived.", class_="quiet")]
    rows = [
        [
            one["group"],
            chip(one["outcome"]),
            one["source"],
            offset(one["source_offset"]),
            f"{one['topic']}/{one['partition']}",
            offset(one["offset"]),
            offset(one["here"]),
            one["exactness"],
            one["reason"] or DASH,
        ]
        for one in page["offsets"]
    ]
    head = (
        ("group", ""),
        ("outcome", ""),
        ("source", "minor"),
        ("offset there", "number"),
        ("partition here", "minor"),
        ("offset here", "number"),
        ("committed here", "number minor"),
        ("exactness", "minor"),
        ("reason", "minor"),
    )
    translated: Content = element("p", "Offsets are not committed here: groups.sync is off.", class_="quiet")
    if page["is_synced"]:
        translated = [
            search_form("/groups", "Part of a group's name", page["search"]),
            data_table("Offsets", head, rows),
            pager(page, "/groups", q=page["search"]),
            element("p", f"{count(page['left_out'])} more offsets are not shown.") if page["left_out"] else None,
        ]
    return "Consumer groups", [*regions, section("Translated offsets", translated)]


def proofs_view(page: Mapping[str, Any]) -> View:
    proofs = [
        [
            topic_link(one["region"], one["topic"]),
            one["path"],
            one["region"],
            f"{count(one['proven'])} of {count(one['partitions'])}",
            chip("not whole") if one["not_whole"] else ("" if one["proven"] else chip("never")),
            ago(one["oldest_age_seconds"]),
            moment(one["newest_at"]),
        ]
        for one in page["proofs"]
    ]
    head = (
        ("topic", ""),
        ("archive path", "minor"),
        ("region", "minor"),
        ("partitions proven", "number"),
        ("state", ""),
        ("oldest proof", ""),
        ("newest proof", "minor"),
    )
    drills = [
        [
            moment(one["at"]),
            chip("equal" if one["good"] else "differs"),
            one["region"],
            count(one["partitions"]),
            count(one["records"]),
            f"{one['restore_seconds']:.1f} s",
            age(one["behind_seconds"]),
            "; ".join(one["differences"]) or DASH,
        ]
        for one in page["drills"]
    ]
    drill_head = (
        ("drill", ""),
        ("result", ""),
        ("region", "minor"),
        ("partitions", "number minor"),
        ("records", "number minor"),
        ("RTO", "number"),
        ("RPO", "number"),
        ("differences", "minor"),
    )
    no_drills = element("p", "Give the file of drill --history with --drills to see them here.", class_="quiet")
    unreadable = page["unreadable_drills"]
    return "Proofs and drills", [
        section(
            "Drills",
            data_table("Drills", drill_head, drills, unread=not_read(page, "drills"))
            if page["has_drills"]
            else no_drills,
            element("p", f"{count(unreadable)} lines of the file cannot be read.", class_="stale")
            if unreadable
            else None,
        ),
        section(
            "Verified topics",
            data_table("Verified topics", head, proofs, unread=not_read(page, "egress", "ingress")),
            pager(page, "/proofs"),
        ),
    ]
