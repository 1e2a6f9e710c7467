"""Our rules beside the answers of MirrorMaker 2's own classes (tests/golden/mm2/verdicts.json)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from formats.group_selection import DEFAULT_GROUP_EXCLUDES, GroupPattern, group_rules, select_groups
from formats.policies.names import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
    is_cycle,
    is_internal_name,
)
from formats.policies.topic_configs import DEFAULT_EXCLUDES as CONFIG_EXCLUDES
from formats.policies.topic_configs import KEEPS_TIMESTAMPS, ConfigFilter
from formats.topic_selection import DEFAULT_EXCLUDES, TopicPattern, TopicRule, select

GOLDEN = Path(__file__).parents[2] / "golden" / "mm2" / "verdicts.json"
JAVA: dict[str, Any] = json.loads(GOLDEN.read_text(encoding="utf-8"))
ALIAS = "a"
POLICIES = [(kind, separator) for kind in ("default", "identity") for separator in JAVA[kind]]
TOPICS: dict[str, bool] = JAVA["topics"]
INTERNAL = {name: answer["is_internal"] for name, answer in JAVA["default"]["."]["topics"].items()}


def policy_of(kind: str, separator: str) -> ReplicationPolicy:
    return DefaultReplicationPolicy(separator) if kind == "default" else IdentityReplicationPolicy(ALIAS, separator)


def test_the_table_is_not_empty() -> None:
    assert len(TOPICS) >= 40
    assert 5 < sum(TOPICS.values()) < len(TOPICS) - 5


@pytest.mark.parametrize(("kind", "separator"), POLICIES)
def test_names_of_topics(kind: str, separator: str) -> None:
    policy, java = policy_of(kind, separator), JAVA[kind][separator]
    ours = {
        topic: {
            "remote": policy.format_remote_topic(ALIAS, topic),
            "source": policy.topic_source(topic),
            "upstream": policy.upstream_topic(topic),
            "original": policy.original_topic(topic),
            "is_heartbeats": policy.is_heartbeats_topic(topic),
            "is_checkpoints": policy.is_checkpoints_topic(topic),
            "is_mm2_internal": policy.is_mm2_internal_topic(topic),
            "is_internal": policy.is_internal_topic(topic),
        }
        for topic in java["topics"]
    }
    assert ours == java["topics"]
    assert {topic: is_internal_name(topic, separator) for topic in ours} == {
        t: o["is_internal"] for t, o in ours.items()
    }
    assert policy.heartbeats_topic() == java["heartbeats_topic"]
    assert policy.offset_syncs_topic("b") == java["offset_syncs_topic"]
    assert policy.checkpoints_topic("b") == java["checkpoints_topic"]


@pytest.mark.parametrize("target", JAVA["cycles"])
def test_cycles(target: str) -> None:
    found = sorted(topic for topic in TOPICS if is_cycle(DefaultReplicationPolicy(), topic, target))
    assert found == JAVA["cycles"][target]


def test_m07_topics_that_cross_with_every_topic_selected() -> None:
    """MirrorMaker 2 replicates what the filter lets pass and the policy does not call internal."""
    chosen = select(TOPICS, [TopicRule(TopicPattern("^.*"), None, (), DEFAULT_EXCLUDES)], ())
    assert {topic: topic in chosen for topic in TOPICS} == {
        t: passes and not INTERNAL[t] for t, passes in TOPICS.items()
    }


@pytest.mark.parametrize("row", JAVA["listed"], ids=lambda row: f"{row['topics']} without {row['exclude']}")
def test_topics_that_lists_select(row: dict[str, Any]) -> None:
    """`topics.exclude` replaces MirrorMaker 2's default excludes; there an exclude beats every name, here, too."""

    def patterns(text: str) -> list[TopicPattern]:
        return [TopicPattern(one if one.isalnum() else f"^{one}") for one in text.split(",") if one]

    rules = [TopicRule(pattern, None, patterns(row["exclude"])) for pattern in patterns(row["topics"])]
    names = ("orders", "orders2", "click-1", "click-2", "foo.replica", "us-west.orders", "a.b")
    assert list(select(names, rules, ())) == row["selected"]


def test_groups_that_cross_with_every_group_selected() -> None:
    chosen = select_groups(JAVA["groups"], group_rules([GroupPattern("^.*")], ()), ())
    assert {group: group in chosen for group in JAVA["groups"]} == JAVA["groups"]


def test_configs_that_cross() -> None:
    """A destination needs some configs to keep every timestamp: those never cross, whatever MirrorMaker 2 does."""
    ours = {name: ConfigFilter().crosses(name) for name in JAVA["configs"] if name not in KEEPS_TIMESTAMPS}
    assert ours == {name: crosses for name, crosses in JAVA["configs"].items() if name not in KEEPS_TIMESTAMPS}


def test_default_excludes() -> None:
    def texts(kind: str) -> list[str]:
        found: str = JAVA["default_excludes"][kind]
        return found.split(", ")

    assert [str(one) for one in DEFAULT_EXCLUDES][:3] == [f"^{text}" for text in texts("topics")]
    assert [str(one) for one in DEFAULT_GROUP_EXCLUDES] == [f"^{text}" for text in texts("groups")]
    assert list(CONFIG_EXCLUDES) == texts("configs")


@pytest.mark.long
def test_mirrormaker_still_answers_so(tmp_path: Path) -> None:
    """Asks the Java classes again: of the version that the local stack runs."""
    answers = tmp_path / "verdicts.json"
    asked = subprocess.run(
        [sys.executable, "-m", "tests.golden.mm2.ask_java", str(answers)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert asked.returncode == 0, asked.stderr[-3000:]
    assert json.loads(answers.read_text(encoding="utf-8")) == JAVA
