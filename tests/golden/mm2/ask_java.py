"""Asks MirrorMaker 2's own classes what they do with names of topics, groups and configs, and writes their answers.

    python -m tests.golden.mm2.ask_java [FILE]        default: verdicts.json beside this file

The jars come from Maven through PySpark's resolver (`spark.jars.packages`), and the classes are called through
PySpark's gateway to Java: neither Maven nor a Java compiler is needed. The first run needs the network.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from infra.local.cache import cache_dir
from infra.local.jars import KAFKA_VERSION
from infra.runtime.java import find_java

GOLDEN = Path(__file__).with_name("verdicts.json")
PACKAGE = f"org.apache.kafka:connect-mirror:{KAFKA_VERSION}"

ALIAS = "a"  # of the source cluster
SEPARATORS = (".", "_", "__")
TOPICS = (
    *("orders", "us-west.orders", "eu.us-west.orders", "eu.us-west.a.orders", "a.b", "a_b", "a__b"),
    *("dotted.local.name", "__consumer_offsets", "__transaction_state", "__x", "_schemas", ".x", "x-internal"),
    *("x.internal", "a.b.internal", "internal", "xinternal", "x_internal", "x__internal"),
    *("connect-internal-offsets", "x-internal-y", "foo.replica", "replica", "x-replica", "foo.replica.x"),
    *("mm2-offset-syncs.b.internal", "mm2-offset-syncs_b_internal", "mm2-offset-syncs__b__internal"),
    *("mm2-configs.b.internal", "mm2", "mm2.x", "b.checkpoints.internal", "b_checkpoints_internal"),
    *("b__checkpoints__internal", "checkpoints.internal", "heartbeats", "b.heartbeats", "c.b.heartbeats"),
    *("b_heartbeats", "my-heartbeats", "heartbeats.b", "connect-offsets", "-internal", "ORDERS-INTERNAL"),
)
TOPIC_LISTS = (  # topics, topics.exclude
    ("orders", ""),
    ("orders,click.*", "click-2"),
    ("foo.replica,x.internal,__x", ""),
    (".*", "us-.*,.*b"),
)
LISTED = ("orders", "orders2", "click-1", "click-2", "foo.replica", "us-west.orders", "a.b")
GROUPS = (
    *("billing", "console-consumer-123", "console-consumer-", "console-consumer", "my-console-consumer-1", "connect-"),
    *("connect-sink", "connect", "reconnect-x", "__x", "_x", "x__", "a group with spaces", "replica", "x.internal"),
)
CONFIGS = (
    *("retention.ms", "cleanup.policy", "min.insync.replicas", "unclean.leader.election.enable", "segment.bytes"),
    *("follower.replication.throttled.replicas", "leader.replication.throttled.replicas", "message.timestamp.type"),
    *("message.timestamp.difference.max.ms", "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"),
    *("max.message.bytes", "xmin.insync.replicas", "min-insync-replicas", "compression.type"),
)
TARGETS = ("a", "b", "us-west", "prod")  # for cycles


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else GOLDEN
    target.write_text(json.dumps(_answers(jvm_with_mirror_maker()), indent=1, sort_keys=True) + "\n", encoding="utf-8")
    print(f"wrote {target}")


def jvm_with_mirror_maker() -> Any:
    """The Java of a Spark session of this process, with MirrorMaker 2's classes."""
    os.environ["JAVA_HOME"] = str(find_java().home)
    from pyspark.sql import SparkSession  # noqa: PLC0415  -- not before JAVA_HOME is set

    session = (
        SparkSession.builder.master("local[1]")
        .config("spark.jars.packages", PACKAGE)
        .config("spark.jars.ivy", str(cache_dir() / "ivy"))
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .getOrCreate()
    )
    return session.sparkContext._jvm


def _answers(jvm: Any) -> dict[str, object]:
    return {
        "version": KAFKA_VERSION,
        "default_excludes": {
            "topics": _class(jvm, "DefaultTopicFilter").TOPICS_EXCLUDE_DEFAULT,
            "groups": _class(jvm, "DefaultGroupFilter").GROUPS_EXCLUDE_DEFAULT,
            "configs": _class(jvm, "DefaultConfigPropertyFilter").CONFIG_PROPERTIES_EXCLUDE_DEFAULT,
        },
        "cycles": {target: _cycles(jvm, target) for target in TARGETS},
        "default": {separator: _of_policy(jvm, "DefaultReplicationPolicy", separator) for separator in SEPARATORS},
        "identity": {separator: _of_policy(jvm, "IdentityReplicationPolicy", separator) for separator in SEPARATORS},
        "topics": {name: _filter(jvm, "DefaultTopicFilter", {}).shouldReplicateTopic(name) for name in TOPICS},
        "listed": [
            {
                "topics": topics,
                "exclude": exclude,
                "selected": [
                    name
                    for name in LISTED
                    if _filter(
                        jvm, "DefaultTopicFilter", {"topics": topics, "topics.exclude": exclude}
                    ).shouldReplicateTopic(name)
                ],
            }
            for topics, exclude in TOPIC_LISTS
        ],
        "groups": {name: _filter(jvm, "DefaultGroupFilter", {}).shouldReplicateGroup(name) for name in GROUPS},
        "configs": {
            name: _filter(jvm, "DefaultConfigPropertyFilter", {}).shouldReplicateConfigProperty(name)
            for name in CONFIGS
        },
    }


def _filter(jvm: Any, name: str, properties: dict[str, str]) -> Any:
    return _configured(jvm, name, properties)


def _of_policy(jvm: Any, name: str, separator: str) -> dict[str, object]:
    properties = {"source.cluster.alias": ALIAS, "replication.policy.separator": separator}
    policy = _configured(jvm, name, properties)
    return {
        "heartbeats_topic": policy.heartbeatsTopic(),
        "offset_syncs_topic": policy.offsetSyncsTopic("b"),
        "checkpoints_topic": policy.checkpointsTopic("b"),
        "topics": {
            topic: {
                "remote": policy.formatRemoteTopic(ALIAS, topic),
                "source": policy.topicSource(topic),
                "upstream": policy.upstreamTopic(topic),
                "original": policy.originalTopic(topic),
                "is_heartbeats": policy.isHeartbeatsTopic(topic),
                "is_checkpoints": policy.isCheckpointsTopic(topic),
                "is_mm2_internal": policy.isMM2InternalTopic(topic),
                "is_internal": policy.isInternalTopic(topic),
            }
            for topic in TOPICS
        },
    }


def _cycles(jvm: Any, target: str) -> list[str]:
    """Topics whose upstream clusters, as the policy's own methods name them, include `target`: the walk that
    MirrorSourceConnector.isCycle makes, which only a connector with two clusters can be asked for."""
    policy = _configured(jvm, "DefaultReplicationPolicy", {"source.cluster.alias": ALIAS})
    found = []
    for topic in TOPICS:
        name, source = topic, policy.topicSource(topic)
        while source is not None and source != target:
            name = policy.upstreamTopic(name)
            source = policy.topicSource(name)
        if source == target:
            found.append(topic)
    return sorted(found)


def _class(jvm: Any, name: str) -> Any:
    return getattr(jvm.org.apache.kafka.connect.mirror, name)


def _configured(jvm: Any, name: str, properties: dict[str, str]) -> Any:
    made = _class(jvm, name)()
    settings = jvm.java.util.HashMap()
    for key, value in properties.items():
        settings.put(key, value)
    made.configure(settings)
    return made


if __name__ == "__main__":
    main()
