"""What of a changed file a running service takes over, and what needs a restart."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from egress.settings import EgressSettings, EgressTopicSettings
from formats.group_selection import GroupPattern
from formats.topic_selection import TopicPattern, TopicRule
from infra.settings.field import Invalid, of, settings_of
from infra.settings.secrets import Path as KeyPath
from replicator.config import Config, from_mapping
from replicator.config.reference import entries
from replicator.config.reload import EGRESS, INGRESS, Reload, differences, merged, reload
from tests.examples import property_examples

Edits = Mapping[tuple[str | int, ...], object]

TABLES: Mapping[str, Any] = {
    "region": "us",
    "kafka": {"bootstrap.servers": "one:9092", "consumer": {"fetch.min.bytes": "1"}},
    "s3": {"bucket": "archive"},
    "sqs": {"queue": "events"},
    "egress": {"topics": {"orders": {}, "^web.*": {"max_segment_age": "1m"}}, "exclude": ["web.tmp"]},
    "ingress": {"sources": [{"region": "eu", "topic": "orders"}]},
    "compaction": {"jobs": [{"name": "daily", "cron": "0 3 * * *"}]},
}
RELOADED: Edits = {
    ("egress", "topics", "payments"): {"start": "latest"},
    ("egress", "topics", "^web.*", "max_segment_age"): "2m",
    ("egress", "exclude"): ["web.tmp", "^web.secret.*"],
    ("egress", "groups"): ["^app.*"],
    ("egress", "groups_exclude"): ["app.test"],
    ("ingress", "sources", 0, "exclude"): ["x"],
    ("ingress", "sources", 0, "on_lost"): "skip",
    ("ingress", "replication_policy"): "default",
    ("ingress", "config_properties_exclude"): ["retention[.].*"],
    ("ingress", "config_property_filter"): "tests.formats.policies.user_policies:NoTemporary",
    ("egress", "group_filter"): "tests.formats.policies.user_policies:NoTemporary",
}
KEPT: Edits = {
    ("kafka", "bootstrap.servers"): "two:9092",
    ("kafka", "consumer", "fetch.min.bytes"): "2",
    ("s3", "bucket"): "another",
    ("egress", "group_id"): "g",
    ("egress", "topic_refresh_interval"): "1m",
    ("ingress", "group_id"): "h",
    ("ingress", "acls"): "off",
    ("ingress", "checkpoint_topic"): "positions",
    ("metrics",): {"listen": "127.0.0.1:9090"},
    ("log",): {"level": "debug"},
    ("sqs", "wait"): "1s",
    ("compaction", "jobs", 0, "cron"): "0 4 * * *",
    ("sync",): {"destination": {"bucket": "copy"}},
}


def edited(*paths: tuple[str | int, ...]) -> Config:
    """The configuration with the edits of `paths`."""
    tables: Any = deepcopy(TABLES)
    for path in paths:
        *heads, last = path
        table = tables
        for head in heads:
            table = table[head]
        table[last] = deepcopy({**RELOADED, **KEPT}[path])
    return from_mapping(tables)


def changed(*paths: tuple[str | int, ...], reads: Collection[KeyPath] = EGRESS | INGRESS) -> Reload:  # type: ignore[operator]
    return reload(edited(), edited(*paths), reads)


def test_the_same_file_changes_nothing() -> None:
    running = edited()
    assert reload(running, edited(), EGRESS) == Reload(config=running, applied=[], needs_restart=[])


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (("egress", "topics", "payments"), "egress.topics.payments"),
        (("egress", "topics", "^web.*", "max_segment_age"), 'egress.topics."^web.*"'),
        (("egress", "exclude"), "egress.exclude"),
        (("ingress", "sources", 0, "exclude"), "ingress.sources"),
    ],
)
def test_what_reloads_is_applied_and_named(path: tuple[str | int, ...], named: str) -> None:
    found = changed(path)
    assert (found.applied, found.needs_restart) == ([named], [])
    assert found.config == edited(path)


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (("kafka", "bootstrap.servers"), 'kafka."bootstrap.servers"'),
        (("kafka", "consumer", "fetch.min.bytes"), 'kafka.consumer."fetch.min.bytes"'),
        (("egress", "group_id"), "egress.group_id"),
        (("log",), "log.level"),
    ],
)
def test_what_does_not_reload_is_named_and_not_applied(path: tuple[str | int, ...], named: str) -> None:
    found = changed(path)
    assert (found.applied, found.needs_restart) == ([], [named])
    assert found.config == edited()


def test_of_a_file_with_both_the_one_is_applied_and_the_other_is_named() -> None:
    found = changed(("egress", "exclude"), ("egress", "group_id"))
    assert (found.applied, found.needs_restart) == (["egress.exclude"], ["egress.group_id"])
    assert found.config == edited(("egress", "exclude"))


def test_the_order_of_topics_counts() -> None:
    before, after = deepcopy(dict(TABLES)), deepcopy(dict(TABLES))
    after["egress"]["topics"] = dict(reversed(after["egress"]["topics"].items()))
    assert reload(from_mapping(before), from_mapping(after), EGRESS).applied == ["egress.topics"]


def test_a_section_that_goes_needs_a_restart() -> None:
    without = from_mapping({name: table for name, table in TABLES.items() if name != "egress"})
    found = reload(edited(), without, EGRESS)
    assert (found.applied, found.needs_restart) == ([], ["egress"])
    assert found.config.egress == edited().egress


def test_a_service_names_only_what_it_reads() -> None:
    everything = [*RELOADED, *KEPT]
    of_egress, of_ingress = changed(*everything, reads=EGRESS), changed(*everything, reads=INGRESS)
    ours = {"ingress.checkpoint_topic", "ingress.group_id"}  # egress never replicates them
    assert {name for name in of_egress.needs_restart if name.startswith("ingress")} == ours
    assert [name for name in of_ingress.needs_restart if name.startswith("egress")] == []
    named = {*of_egress.needs_restart, *of_ingress.needs_restart}
    assert [name for name in named if name.startswith(("sync", "compaction"))] == []


def test_what_reloads_may_contradict_what_does_not() -> None:
    tables: Any = deepcopy(TABLES)
    tables["ingress"] |= {"checkpoint_topic": "positions"}
    running = from_mapping(tables)
    tables["ingress"] |= {"checkpoint_topic": "others"}
    tables["ingress"]["sources"][0]["destination_topic"] = "positions"
    with pytest.raises(Invalid, match="positions"):
        reload(running, from_mapping(tables), INGRESS)


def topics(*names: str) -> tuple[TopicRule[EgressTopicSettings], ...]:
    return tuple(TopicRule(TopicPattern(name), EgressTopicSettings()) for name in names)


BEFORE = EgressSettings(topics=topics("orders"))
CHOICES: Mapping[str, Sequence[object]] = {
    "topics": [topics("orders"), topics("orders", "^web.*"), topics("^web.*", "orders")],
    "exclude": [(), (TopicPattern("^x.*"),)],
    "groups": [(), (GroupPattern("app"),)],
    "group_id": ["replicator.egress", "another"],
    "upload_threads": [4, 5],
    "spool_dir": [None, Path("/spool")],
}


@property_examples()
@given(st.fixed_dictionaries({name: st.sampled_from(values) for name, values in CHOICES.items()}))
def test_what_reloads_is_as_in_the_file_and_the_rest_as_it_was(chosen: Mapping[str, Any]) -> None:
    after = replace(BEFORE, **chosen)
    found = merged(BEFORE, after)
    for name, field in settings_of(EgressSettings).items():
        assert getattr(found, name) == getattr(after if of(field).reloads else BEFORE, name)
    named = {path[0] for path, _ in differences(BEFORE, after)}
    assert named == {name for name, value in chosen.items() if value != getattr(BEFORE, name)}
    rest = list(differences(found, after))
    assert rest == [(path, reloads) for path, reloads in differences(BEFORE, after) if not reloads]


def test_these_settings_reload_and_no_others() -> None:
    found = {f"{entry.section}.{entry.name}" for entry in entries() if entry.reloads}
    tables = {entry for entry in found if entry.startswith(('[egress.topics."name"]', "[[ingress.sources]]"))}
    assert found - tables == {
        *(f"[egress].{name}" for name in ("exclude", "topic_filter", "groups", "groups_exclude", "group_filter")),
        *(f"[egress].{name}" for name in ("group_interval", "group_calls_per_second")),
        *(f"[ingress].{name}" for name in ("replication_policy", "replication_policy_separator")),
        *(f"[ingress].{name}" for name in ("config_properties_exclude", "config_property_filter")),
        *(f'[flows."A->B"].{name}' for name in ("topics", "enabled", "groups", "groups_exclude")),
    }
    below = [e for e in entries() if e.section in ('[egress.topics."name"]', "[[ingress.sources]]")]
    assert len(tables) == len(below)
