"""Asks MirrorMaker 2's own MirrorClient, RemoteClusterUtils and formatters about a cluster, and writes their answers.

    python -m tests.golden.mm2.ask_client QUESTIONS ANSWERS        JSON files

A question has the properties of the client, the aliases and groups to ask for, and a formatter for each topic to print:

    {"properties": {…}, "aliases": ["us"], "groups": [["us", "billing"]], "patterns": [["us", ".*"]],
     "topics": {"us.heartbeats": "HeartbeatFormatter"}}

The classes are reached as in `tests.golden.mm2.ask_java`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.golden.mm2.ask_java import jvm_with_mirror_maker

SECONDS = 20
MIRROR_CLIENT, UTILS = "MirrorClient", "RemoteClusterUtils"


def main() -> None:
    questions = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    java = Java(jvm_with_mirror_maker())
    answers = [java.answers(one) for one in questions]
    Path(sys.argv[2]).write_text(json.dumps(answers), encoding="utf-8")


class Java:
    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        self._mirror = jvm.org.apache.kafka.connect.mirror
        self._within = jvm.java.time.Duration.ofSeconds(SECONDS)

    def answers(self, question: Mapping[str, Any]) -> Mapping[str, object]:
        properties = self._map(question["properties"])
        client = self._mirror.MirrorClient(properties)
        try:
            of_client = self._of_client(client, question)
        finally:
            client.close()
        printed = {topic: self._printed(properties, topic, name) for topic, name in question["topics"].items()}
        return {MIRROR_CLIENT: of_client, UTILS: self._of_utils(properties, question), "printed": printed}

    def _of_client(self, client: Any, question: Mapping[str, Any]) -> Mapping[str, object]:
        return {
            "hops": {alias: client.replicationHops(alias) for alias in question["aliases"]},
            "upstream": sorted(client.upstreamClusters()),
            "heartbeats": sorted(client.heartbeatTopics()),
            "checkpoints": sorted(client.checkpointTopics()),
            "remote": sorted(client.remoteTopics()),
            "remote_of": {alias: sorted(client.remoteTopics(alias)) for alias in question["aliases"]},
            "offsets": [
                _offsets(client.remoteConsumerOffsets(group, alias, self._within))
                for alias, group in question["groups"]
            ],
            "offsets_of_groups": [
                _by_group(client.remoteConsumerOffsets(self._pattern(pattern), alias, self._within))
                for alias, pattern in question["patterns"]
            ],
        }

    def _of_utils(self, properties: Any, question: Mapping[str, Any]) -> Mapping[str, object]:
        """The same, without remote topics."""
        utils = self._mirror.RemoteClusterUtils
        return {
            "hops": {alias: utils.replicationHops(properties, alias) for alias in question["aliases"]},
            "upstream": sorted(utils.upstreamClusters(properties)),
            "heartbeats": sorted(utils.heartbeatTopics(properties)),
            "checkpoints": sorted(utils.checkpointTopics(properties)),
            "offsets": [
                _offsets(utils.translateOffsets(properties, alias, group, self._within))
                for alias, group in question["groups"]
            ],
            "offsets_of_groups": [
                _by_group(utils.translateOffsets(properties, alias, self._pattern(pattern), self._within))
                for alias, pattern in question["patterns"]
            ],
        }

    def _printed(self, properties: Any, topic: str, formatter: str) -> str:
        """What the formatter prints of each record of a topic with one partition."""
        kafka, io = self._jvm.org.apache.kafka, self._jvm.java.io
        written = getattr(self._mirror.formatters, formatter)()
        bytes_of = kafka.common.serialization.ByteArrayDeserializer
        consumer = kafka.clients.consumer.KafkaConsumer(
            self._map({"bootstrap.servers": properties.get("bootstrap.servers")}), bytes_of(), bytes_of()
        )
        output = io.ByteArrayOutputStream()
        stream = io.PrintStream(output, True, "UTF-8")
        try:
            where = kafka.common.TopicPartition(topic, 0)
            assigned = self._jvm.java.util.ArrayList()
            assigned.add(where)
            consumer.assign(assigned)
            consumer.seekToBeginning(assigned)
            end = consumer.endOffsets(assigned).get(where)
            while consumer.position(where) < end:
                records = consumer.poll(self._within).iterator()
                while records.hasNext():
                    written.writeTo(records.next(), stream)
        finally:
            consumer.close()
        return str(output.toString("UTF-8"))

    def _pattern(self, text: str) -> Any:
        return self._jvm.java.util.regex.Pattern.compile(text)

    def _map(self, properties: Mapping[str, str]) -> Any:
        made = self._jvm.java.util.HashMap()
        for key, value in properties.items():
            made.put(key, value)
        return made


def _offsets(found: Any) -> list[list[object]]:
    """Topic, partition, offset and metadata, in order."""
    rows = [
        [entry.getKey().topic(), entry.getKey().partition(), entry.getValue().offset(), entry.getValue().metadata()]
        for entry in found.entrySet()
    ]
    return sorted(rows, key=lambda row: row[:2])


def _by_group(found: Any) -> dict[str, list[list[object]]]:
    return {entry.getKey(): _offsets(entry.getValue()) for entry in found.entrySet()}


if __name__ == "__main__":
    main()
