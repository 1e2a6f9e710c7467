from __future__ import annotations

import dataclasses
import json
import tomllib
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import ConfigError
from formats.segment import OffsetRange
from formats.topic_selection import TopicPattern
from infra.settings.field import settings_of
from infra.settings.secrets import is_secret
from replicator.config import (
    Config,
    EgressTopicSettings,
    HeldOffsets,
    IngressSource,
    KafkaSettings,
    LogSettings,
    MetricsSettings,
    RetentionRule,
    S3Settings,
    SqsSettings,
    from_mapping,
    load,
    parse,
)
from replicator.config.explain import explain_group, explain_topic
from replicator.config.reference import entries, template
from replicator.config.show import to_tables, to_toml
from tests.examples import property_examples

MIB = 1024 * 1024
DEPLOY = Path(__file__).parents[3] / "infra" / "deploy"

SMALL = """
region = "us-east-1"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "source-bucket"
"""

WHOLE = """
region = "us-east-1"

[kafka]
"bootstrap.servers" = "localhost:9092"
[kafka.consumer]
"fetch.min.bytes" = 1
"check.crcs" = true

[s3]
bucket = "source-bucket"
prefix = "data"

[egress]
group_id = "replicator.egress"
[egress.topics."sensor.events"]
max_segment_messages = 1_000_000
max_segment_size = "100MiB"
max_segment_age = "5m"

[sqs]
queue = "destination-bucket-events-queue"

[ingress]
group_id = "replicator.ingress"
segment_events_topic = "replicator.segmentevents"
segment_events_retention = "1h"
checkpoint_topic = "replicator.checkpoint"
delivery = "at-least-once"
[[ingress.sources]]
region = "us-east-1"
topic = "sensor.events"
destination_topic = "sensor.events.copy"
lost_segment_timeout = "1h"
late_segment_retries = 5
first_segment_delay = "5m"

[sync]
topics = ["a", "^b.*"]
levels = [0, 1]
[sync.destination]
bucket = "other"
[sync.queue]
queue = "source-events"

[retention]
max_delete_percent = 20
[retention.defaults]
keep_segments = 2
[retention.topics."sensor.events"]
max_age = "30d"
hold = ["3:1000-2000", "*:0-99"]
[retention.topics."^logs-.*"]
max_bytes = "1TiB"
"""


def problems(text: str, environment: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        parse(text, environment=environment or {})
    return list(caught.value.problems)


def only(text: str, environment: Mapping[str, str] | None = None) -> str:
    found = problems(text, environment)
    assert len(found) == 1, found
    return found[0]


class TestReading:
    def test_the_smallest_file_is_all_defaults(self) -> None:
        config = parse(SMALL, source="small.toml")
        assert config == Config(
            region="us-east-1",
            kafka=KafkaSettings(base={"bootstrap.servers": "localhost:9092"}),
            s3=S3Settings(bucket="source-bucket"),
            source="small.toml",
        )
        assert (config.egress, config.ingress, config.sync, config.sqs) == (None, None, None, None)
        assert (config.log, config.metrics) == (LogSettings(), MetricsSettings())

    def test_the_sample(self) -> None:
        config = parse(WHOLE)
        assert config.egress is not None
        assert [(r.pattern.text, r.settings) for r in config.egress.topics] == [
            ("sensor.events", EgressTopicSettings())
        ]
        assert config.ingress is not None
        assert config.ingress.sources == (
            IngressSource(
                region="us-east-1",
                topic=TopicPattern("sensor.events"),
                destination_topic="sensor.events.copy",
                lost_segment_timeout=timedelta(hours=1),
                late_segment_retries=5,
                first_segment_delay=timedelta(minutes=5),
            ),
        )
        assert config.sqs == SqsSettings(queue="destination-bucket-events-queue")
        assert config.sync is not None
        assert config.sync.levels == (0, 1)
        assert [pattern.text for pattern in config.sync.topics] == ["a", "^b.*"]
        assert config.sync.destination.bucket == "other"
        assert config.own_topics == {"replicator.segmentevents", "replicator.checkpoint"}
        assert config.retention is not None
        hold = (HeldOffsets(3, OffsetRange(1000, 2000)), HeldOffsets(None, OffsetRange(0, 99)))
        assert {rule.pattern.text: rule.settings for rule in config.retention.topics} == {
            "sensor.events": RetentionRule(max_age=timedelta(days=30), keep_segments=2, hold=hold),
            "^logs-.*": RetentionRule(max_bytes=1 << 40, keep_segments=2),
        }
        assert config.retention.max_delete_percent == 20

    def test_the_ancestors_defaults(self) -> None:
        topic = EgressTopicSettings()
        assert (topic.max_segment_messages, topic.max_segment_size) == (1_000_000, 100 * MIB)
        assert topic.max_segment_age == timedelta(minutes=5)
        source = IngressSource(region="a", topic=TopicPattern("t"))
        assert (source.lost_segment_timeout, source.late_segment_retries) == (timedelta(hours=24), 16)
        assert source.first_segment_delay == timedelta(minutes=30)
        assert source.destination("t") == "t.ingress"

    def test_properties_are_text_and_roles_overlay(self) -> None:
        kafka = parse(WHOLE).kafka
        assert kafka is not None
        assert kafka.consumer == {"fetch.min.bytes": "1", "check.crcs": "true"}
        assert kafka.properties("consumer") == {
            "bootstrap.servers": "localhost:9092",
            "fetch.min.bytes": "1",
            "check.crcs": "true",
        }
        assert kafka.properties("admin") == {"bootstrap.servers": "localhost:9092"}
        overlaid = KafkaSettings(base={"bootstrap.servers": "a"}, producer={"bootstrap.servers": "b"})
        assert overlaid.properties("producer") == {"bootstrap.servers": "b"}

    def test_properties_without_quotes_mean_the_same(self) -> None:
        text = SMALL.replace('"bootstrap.servers"', "bootstrap.servers")
        assert parse(text).kafka == parse(SMALL).kafka
        assert only(SMALL.replace("[s3]", 'bootstrap.servers = "x"\n[s3]')) == (
            'kafka."bootstrap.servers": is set twice, with quotes and without'
        )

    def test_topics_keep_the_order_of_the_file(self) -> None:
        config = parse(SMALL + '[egress.topics."^z.*"]\n[egress.topics.b]\n[egress.topics."^a.*"]\n')
        assert config.egress is not None
        assert [rule.pattern.text for rule in config.egress.topics] == ["^z.*", "b", "^a.*"]

    def test_defaults_of_topics(self) -> None:
        config = parse(
            SMALL
            + '[egress.defaults]\nmax_segment_age = "1m"\nmax_segment_size = "1MiB"\n'
            + '[egress.topics.a]\n[egress.topics.b]\nmax_segment_age = "2m"\n'
        )
        assert config.egress is not None
        assert {r.pattern.text: r.settings for r in config.egress.topics} == {
            "a": EgressTopicSettings(max_segment_age=timedelta(minutes=1), max_segment_size=MIB),
            "b": EgressTopicSettings(max_segment_age=timedelta(minutes=2), max_segment_size=MIB),
        }

    def test_defaults_of_sources(self) -> None:
        config = parse(
            SMALL
            + '[sqs]\nqueue = "q"\n[ingress.defaults]\nregion = "b"\non_lost = "skip"\n'
            + '[[ingress.sources]]\ntopic = "a"\n[[ingress.sources]]\ntopic = "b"\non_lost = "stop"\n'
        )
        assert config.ingress is not None
        assert [(s.region, s.on_lost) for s in config.ingress.sources] == [("b", "skip"), ("b", "stop")]

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ('"earliest"', "earliest"),
            ('"latest"', "latest"),
            ("2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
            ('"2026-01-31T13:00:00+01:00"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ],
    )
    def test_start(self, text: str, wanted: object) -> None:
        config = parse(SMALL + f"[egress.topics.a]\nstart = {text}\n")
        assert config.egress is not None
        assert config.egress.topics[0].settings.start == wanted

    @pytest.mark.parametrize(
        "text", ["2026-01-31T12:00:00", "2026-01-31", '"2026-01-31"', "5", '"yesterday"', "1969-01-01T00:00:00Z"]
    )
    def test_bad_start(self, text: str) -> None:
        assert only(SMALL + f"[egress.topics.a]\nstart = {text}\n").startswith("egress.topics.a.start: must ")

    def test_from_python(self) -> None:
        tables = tomllib.loads(WHOLE)
        assert from_mapping(tables) == dataclasses.replace(parse(WHOLE), source="python")
        tables["s3"] |= {"access_key_id": "a", "secret_access_key": "b"}
        assert from_mapping(tables).s3.secret_access_key == "b"

    def test_a_file(self, tmp_path: Path) -> None:
        file = tmp_path / "r.toml"
        file.write_text(SMALL)
        assert load(file).source == str(file)

    @pytest.mark.parametrize("content", [None, b"\xff\xfe", b"a = ", b"a = " + b"[" * 20_000])
    def test_a_file_that_cannot_be_read(self, tmp_path: Path, content: bytes | None) -> None:
        file = tmp_path / "r.toml"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigError) as caught:
            load(file)
        assert caught.value.source == str(file)
        with pytest.raises(ConfigError):
            load(tmp_path)

    @pytest.mark.parametrize("name", ["us-east-1", "eu-west-1"])
    def test_the_examples_of_two_regions(self, name: str) -> None:
        config = parse((DEPLOY / f"{name}.toml").read_text(), environment={"KAFKA_PASSWORD": "x"})
        assert config.region == name
        assert config.kafka is not None
        assert config.kafka.base["sasl.password"] == "x"
        assert config.egress is not None
        assert config.ingress is not None


class TestProblems:
    def test_all_at_once(self) -> None:
        assert problems(
            """
            format = 5
            [kafka]
            "group.id" = "x"
            acks = 1
            [kafka.producer]
            "enable.idempotence" = false
            [s3]
            bucket = "b"
            part_size = "1MiB"
            [egress]
            groupid = "x"
            upload_threads = "4"
            [egress.topics."sensor.events"]
            max_segment_age = 5
            max_segment_size = "100 megs"
            [egress.topics."^("]
            [egress.topics.foo.bar]
            [sqs]
            wait = "30s"
            [compaction]
            [logs]
            """
        ) == [
            "logs: unknown key (did you mean 'log'?)",
            "format: must be a text in quotes, not a whole number",
            'kafka."bootstrap.servers": missing: addresses of brokers, such as "broker-1:9092,broker-2:9092"',
            'kafka."group.id": is set by egress.group_id and ingress.group_id',
            "kafka.acks: must stay \"all\", not '1': a checkpoint says that the record before it cannot be lost",
            'kafka.producer."enable.idempotence": must stay true: without it a retried request may repeat or reorder '
            "records",
            "s3.part_size: must be at least 5MiB, not 1MiB",
            "sqs.queue: missing: name or URL of the queue that the bucket's notifications go to",
            "sqs.wait: must be at most 20s, not 30s",
            "egress.groupid: unknown key (did you mean 'group_id'?)",
            "egress.upload_threads: must be a whole number, not a text",
            'egress.topics."sensor.events".max_segment_size: \'100 megs\' is not a size; write it like "64KiB", '
            '"100MiB", "1GiB", "10MB" or a plain number of bytes',
            'egress.topics."sensor.events".max_segment_age: needs a unit, such as "500ms", "30s", "5m", "1h30m", "2d"',
            "egress.topics.\"^(\": '^(' is not an expression: missing ), unterminated subpattern at position 1",
            'egress.topics.foo.bar: unknown key; a topic name with dots needs quotes: [egress.topics."foo.bar"]',
            "compaction.jobs: missing: without a [[compaction.jobs]] nothing is merged",
            "region: missing: the name of this region, which its archive carries",
        ]

    def test_an_empty_file(self) -> None:
        assert {problem.partition(":")[0] for problem in problems("")} == {"region", "s3"}

    @pytest.mark.parametrize(
        ("added", "wanted"),
        [
            ("[egress]", 'egress.topics: missing: without an [egress.topics."name"] nothing is archived'),
            ("egress = 5", "egress: must be a table, not a whole number"),
            ("[egress.topics]\na = 5", "egress.topics.a: must be a table, not a whole number"),
            ('[egress.topics."a b"]', "'a b' is not a topic name"),
            ("[egress.topics.__consumer_offsets]", "is an internal topic"),
            ("[egress.topics.a]\nmax_segment_messages = 0", "max_segment_messages: must be at least 1, not 0"),
            ("[egress.topics.a]\nmax_segment_messages = true", "must be a whole number, not true or false"),
            ('[egress.topics.a]\nmax_segment_age = "0s"', "max_segment_age: must be at least 1s, not 0s"),
            ('[egress.topics.a]\nmax_segment_age = "9999d"', "max_segment_age: must be at most 3650d"),
            ('[egress.topics.a]\nmax_segment_size = "1TiB"', "may not fit into 10_000 parts of s3.part_size (16MiB)"),
            (
                '[egress.topics.a]\n[egress]\non_archive_behind = "stpo"',
                "\"stop\" or \"continue\", not 'stpo' (did you mean 'stop'?)",
            ),
            ('[log]\nlevel = "INFO"', 'log.level: must be "debug" or "info" or "warning" or "error", not \'INFO\''),
            ('[metrics]\nlisten = "9090"', 'metrics.listen: must be "host:port"'),
            ('[metrics]\nlisten = "a:65536"', 'metrics.listen: must be "host:port"'),
            ("[sync]", "sync.destination: missing"),
            ('[sync.destination]\nbucket = "source-bucket"', "sync.destination: is the bucket and prefix of [s3]"),
            ('[sync]\nlevels = [-1]\n[sync.destination]\nbucket = "b"', "sync.levels: each level must be 0 to 9999"),
            ('[sync]\nlevels = ["x"]\n[sync.destination]\nbucket = "b"', "sync.levels: item 0: must be a whole number"),
            ("[retention]", 'retention.topics: missing: without a [retention.topics."name"] nothing is removed'),
            ("[retention.topics.a]\nkeep_segments = 0", "retention.topics.a.keep_segments: must be at least 1, not 0"),
            ('[retention.topics.a]\nmax_age = "0s"', "retention.topics.a.max_age: must be longer than 0s"),
            ("[retention.topics.a]\nmin_age = 1", "retention.topics.a.min_age: unknown key (did you mean 'max_age'?)"),
            ("[retention.topics.a.b]", 'a topic name with dots needs quotes: [retention.topics."a.b"]'),
            ("[retention.topics.__a]", "retention.topics.__a: is an internal topic"),
            ('[retention.topics.a]\nhold = ["0:5"]', "hold: item 0: '0:5' must be partition:first-last, such as"),
            ('[retention.topics.a]\nhold = ["0:5-4"]', "hold: item 0: not an offset range: 5-4"),
            ('[retention]\nregion = "b"\n[retention.topics.a]', "retention.region: 'b' is another region's archive"),
            ("[retention]\nmax_delete_percent = 0\n[retention.topics.a]", "max_delete_percent: must be at least 1"),
            (
                '[sync]\ntopics = ["^("]\n[sync.destination]\nbucket = "b"',
                "sync.topics: item 0: '^(' is not an expression",
            ),
            (
                '[sqs]\nqueue = "q"\n[sync.queue]\nqueue = "q"\n[sync.destination]\nbucket = "b"',
                "sync.queue.queue: is the queue of [sqs]",
            ),
        ],
    )
    def test_one(self, added: str, wanted: str) -> None:
        text = f"{added}\n{SMALL}" if added.startswith("egress =") else f"{SMALL}\n{added}"
        assert wanted in only(text)

    @pytest.mark.parametrize(
        ("added", "wanted"),
        [
            ('prefix = "/data"', "s3.prefix: must be words between single slashes"),
            ('prefix = "data/"', "s3.prefix: must be words between single slashes"),
            ('bucket2 = "x"', "s3.bucket2: unknown key (did you mean 'bucket'?)"),
            ('endpoint_url = "localhost:9000"', "s3.endpoint_url: must be a URL"),
            ('access_key_id = "x"', "s3.access_key_id: needs secret_access_key"),
            ('kms_key_id = "x"', 's3.kms_key_id: needs sse = "aws:kms"'),
            ('sse = "aes"', 's3.sse: must be "AES256" or "aws:kms" or "aws:kms:dsse", not \'aes\''),
            ('part_size = "6GiB"', "s3.part_size: must be at most 5GiB, not 6GiB"),
            ("part_size = 5.5", "s3.part_size: must be a size, such as"),
            ('[format_options]\nx = "${NOT_SET}"', "format_options.x: the environment variable NOT_SET is not set"),
        ],
    )
    def test_one_of_s3(self, added: str, wanted: str) -> None:
        assert wanted in only(f"{SMALL}{added}")

    @pytest.mark.parametrize("role", ["", ".consumer"])
    @pytest.mark.parametrize(
        "name",
        ["enable.auto.commit", "auto.offset.reset", "enable.partition.eof", "group.id", "enable.auto.offset.store"],
    )
    def test_properties_of_consumers_that_are_ours(self, role: str, name: str) -> None:
        found = (
            only(SMALL + f'[kafka{role}]\n"{name}" = "x"'.replace("[kafka]\n", "[kafka.admin]\n"))
            if role
            else only(SMALL.replace("[s3]", f'"{name}" = "x"\n[s3]'))
        )
        assert found.startswith(f'kafka{role}."{name}": is ')

    @pytest.mark.parametrize(
        "line",
        [
            '"enable.idempotence" = false',
            '"transactional.id" = "x"',
            '"delivery.report.only.error" = true',
            "acks = 1",
            '"acks" = "0"',
        ],
    )
    def test_properties_of_producers_that_are_ours(self, line: str) -> None:
        assert only(SMALL + f"[kafka.producer]\n{line}").startswith("kafka.producer.")

    @pytest.mark.parametrize("line", ['"enable.idempotence" = true', "acks = -1", 'acks = "all"', '"linger.ms" = 5.5'])
    def test_properties_of_producers_that_may_stay(self, line: str) -> None:
        parse(SMALL + f"[kafka.producer]\n{line}")

    def test_isolation(self) -> None:
        parse(SMALL + '[kafka.consumer]\n"isolation.level" = "read_uncommitted"')
        assert "read_committed" in only(SMALL + '[kafka.consumer]\n"isolation.level" = "none"')

    def test_a_constructor_refuses_what_the_file_may_not_say(self) -> None:
        with pytest.raises(ValueError, match="max_segment_messages: must be at least 1"):
            EgressTopicSettings(max_segment_messages=0)
        with pytest.raises(ValueError, match="kms_key_id"):
            S3Settings(bucket="b", kms_key_id="x")


def ingress(*sources: str, region: str = "here", more: str = "") -> str:
    tables = "\n".join(f"[[ingress.sources]]\n{source}" for source in sources)
    return SMALL.replace("us-east-1", region) + f'[sqs]\nqueue = "q"\n[ingress]\n{more}\n{tables}\n'


class TestSources:
    def test_needs_a_queue(self) -> None:
        text = ingress('region = "a"\ntopic = "t"').replace('[sqs]\nqueue = "q"\n', "")
        assert only(text).startswith("sqs: missing: [ingress] reads")
        assert any(p.startswith("sqs: missing") for p in problems(text + "[logs]"))

    @pytest.mark.parametrize(
        ("sources", "wanted"),
        [
            ((), "ingress.sources: missing"),
            (('topic = "t"',), "ingress.sources[0].region: missing"),
            (('region = "a"\ntopic = "^("',), "ingress.sources[0].topic: '^(' is not an expression"),
            (
                ('region = "a"\ntopic = "^t.*"\ndestination_topic = "x"',),
                "sources[0].destination_topic: 'x' is one topic",
            ),
            (
                ('region = "a"\ntopic = "t"\ndestination_topic = "{topics}"',),
                "sources[0].destination_topic: must be a topic",
            ),
            (('region = "a"\ntopic = "__t"',), "sources[0].topic: is an internal topic"),
            (('region = "a"\ntopic = "t"\ndestination_topic = "replicator.x"',), "'replicator.x' is an internal topic"),
            (('region = "here"\ntopic = "t"\ndestination_topic = "t"',), "sources[0].destination_topic: would deliver"),
            (
                ('region = "here"\ntopic = "^t.*"\ndestination_topic = "{topic}"',),
                "sources[0].destination_topic: would deliver",
            ),
            (('region = "a"\ntopic = "t"\nlate_segment_retries = -1',), "late_segment_retries: must be at least 0"),
        ],
    )
    def test_one_problem(self, sources: tuple[str, ...], wanted: str) -> None:
        assert wanted in only(ingress(*sources))

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            # two names, one fixed destination
            (
                'region = "a"\ntopic = "t"\ndestination_topic = "d"',
                'region = "a"\ntopic = "u"\ndestination_topic = "d"',
            ),
            # the default destination of one name of two regions
            ('region = "a"\ntopic = "t"', 'region = "b"\ntopic = "t"'),
            # the same expression of two regions
            ('region = "a"\ntopic = "^t.*"', 'region = "b"\ntopic = "^t.*"'),
            # a name, and an expression that would make the same destination of another topic
            (
                'region = "a"\ntopic = "t"\ndestination_topic = "x.u"',
                'region = "b"\ntopic = "^u.*"\ndestination_topic = "x.{topic}"',
            ),
        ],
    )
    def test_topics_are_never_merged(self, first: str, second: str) -> None:
        assert "allow_merge = true for both" in only(ingress(first, second))
        assert "allow_merge = true for both" in only(ingress(second, first))
        allowed = "\nallow_merge = true"
        assert "allow_merge = true for both" in only(ingress(first + allowed, second))
        assert parse(ingress(first + allowed, second + allowed)).ingress is not None

    @pytest.mark.parametrize(
        ("first", "second"),
        [
            # an exception from an expression keeps its destination: the name wins
            ('region = "a"\ntopic = "^.*"', 'region = "a"\ntopic = "t"\npartitions = 3'),
            # the same source twice: the first wins
            ('region = "a"\ntopic = "t"', 'region = "a"\ntopic = "t"\npartitions = 3'),
            ('region = "a"\ntopic = "^t.*"', 'region = "b"\ntopic = "^t.*"\ndestination_topic = "b.{topic}"'),
        ],
    )
    def test_sources_that_are_not_merged(self, first: str, second: str) -> None:
        parse(ingress(first, second))
        parse(ingress(second, first))

    def test_a_name_beats_expressions_then_the_first(self) -> None:
        config = parse(
            ingress(
                'region = "a"\ntopic = "^t.*"',
                'region = "a"\ntopic = "^.*"\ndestination_topic = "all.{topic}"',
                'region = "a"\ntopic = "tx"\ndestination_topic = "named"',
            )
        ).ingress
        assert config is not None

        def destination(topic: str, region: str = "a") -> str | None:
            source = config.source_of(region, topic)
            return None if source is None else source.destination(topic)

        assert destination("t1") == "t1.ingress"
        assert destination("u") == "all.u"
        assert destination("tx") == "named"
        assert destination("u", "b") is None

    def test_group_and_topics_are_different_things(self) -> None:
        source = 'region = "a"\ntopic = "t"'
        assert "checkpoint_topic" in only(ingress(source, more='checkpoint_topic = "x"\nsegment_events_topic = "x"'))
        text = ingress(source, more='group_id = "replicator.egress"') + "[egress.topics.a]"
        assert only(text).startswith("ingress.group_id: 'replicator.egress' is also egress.group_id")

    def test_own_topics_are_internal_by_their_names_here(self) -> None:
        text = ingress('region = "a"\ntopic = "t"', more='checkpoint_topic = "cp"') + "[egress.topics.cp]"
        assert only(text).startswith("egress.topics.cp: is an internal topic")

    def test_delivery_is_exactly_once_by_default(self) -> None:
        source = 'region = "a"\ntopic = "t"'
        config = parse(ingress(source))
        assert config.ingress is not None
        assert config.ingress.delivery == "exactly-once"
        assert only(ingress(source, more='delivery = "once"')).startswith("ingress.delivery: ")

    @pytest.mark.parametrize(
        ("source", "archived", "endless"),
        [
            ("^orders.*", "^orders.*", True),
            ("^orders\\\\..*", "^.*", True),
            ("orders", "^orders.*", False),  # orders.ingress is archived, but not delivered
            ("^orders", "^orders.*", False),
            ("^orders.*", "orders", False),
        ],
    )
    def test_a_loop_within_one_file_is_refused(self, source: str, archived: str, endless: bool) -> None:
        text = ingress(f'region = "here"\ntopic = "{source}"') + f'[egress.topics."{archived}"]'
        if endless:
            assert only(text).startswith("ingress.sources[0].topic: delivers orders")
        else:
            parse(text)

    def test_explain(self) -> None:
        text = ingress('region = "a"\ntopic = "^t.*"', 'region = "b"\ntopic = "u"')
        config = parse(text + '[egress.topics."^.*"]\n[retention.topics.t1]\n')
        assert [answer.text for answer in explain_topic(config, "t1")] == [
            "egress of here: t1: selected, by the expression ^.*",
            "ingress from a: t1 → t1.ingress: selected, by the expression ^t.*; named '{topic}.ingress', as neither "
            "destination_topic nor replication_policy is set",
            "ingress from b: t1: not selected, because no name or expression matches it (tried: u)",
            "retention of here: t1: selected, by its name",
        ]


class TestEnvironmentAndSecrets:
    def test_substitution(self) -> None:
        text = SMALL.replace("source-bucket", "x-${A}-${B_2}")
        assert parse(text, environment={"A": "1", "B_2": "$2{}"}).s3.bucket == "x-1-$2{}"

    def test_a_dollar_stays(self) -> None:
        config = parse(SMALL.replace("source-bucket", "a$b$${C}$") + '[egress.topics."^a$"]', environment={})
        assert config.s3.bucket == "a$b${C}$"

    def test_every_missing_variable_is_reported(self) -> None:
        assert problems(SMALL.replace("source-bucket", "${X}${Y}").replace("localhost", "${Z}"))[:3] == [
            'kafka."bootstrap.servers": the environment variable Z is not set',
            "s3.bucket: the environment variable X is not set",
            "s3.bucket: the environment variable Y is not set",
        ]

    @pytest.mark.parametrize("value", ["${}", "${a-b}", "${A", "${1}"])
    def test_a_bad_reference(self, value: str) -> None:
        assert "is written ${NAME}" in problems(SMALL.replace("source-bucket", value), {"A": "x"})[0]

    @pytest.mark.parametrize(
        ("line", "path"),
        [
            ('[s3]\naccess_key_id = "x"\nsecret_access_key = "hunter2"', "s3.secret_access_key"),
            ('[kafka.admin]\n"sasl.password" = "hunter2"', 'kafka.admin."sasl.password"'),
            ('[kafka.admin]\nssl.key.password = "hunter2"', "kafka.admin.ssl.key.password"),
            ('[kafka.admin]\nssl.key.pem = "hunter2"', "kafka.admin.ssl.key.pem"),
            ('[format_options]\nmy_password = "x${A}hunter2"', "format_options.my_password"),
        ],
    )
    def test_a_secret_in_the_file(self, line: str, path: str) -> None:
        text = SMALL.replace("[s3]", line) if line.startswith("[s3]") else SMALL + line
        found = only(text, {"A": "x"})
        assert found.startswith(f"{path}: is a secret")
        assert "${" in found
        assert "hunter2" not in found

    @pytest.mark.parametrize(
        ("name", "wanted"),
        [
            ("sasl.password", True),
            ("secret_access_key", True),
            ("session_token", True),
            ("ssl.keystore.password", True),
            ("sasl.oauthbearer.client.secret", True),
            ("sasl.oauthbearer.token.endpoint.url", False),
            ("ssl.key.location", False),
            ("access_key_id", False),
            ("kms_key_id", False),
            ("ssl.certificate.pem", False),
        ],
    )
    def test_names_of_secrets(self, name: str, wanted: bool) -> None:
        assert is_secret(name) is wanted

    def test_every_secret_setting_has_a_secret_name(self) -> None:
        """A setting that its field masks must also be refused by its name."""
        for cls in (S3Settings, SqsSettings):
            for name, field in settings_of(cls).items():
                assert field.metadata["replicator"].is_secret == is_secret(name) == (not field.repr)

    def test_secrets_are_never_shown(self) -> None:
        text = (
            SMALL.replace("[s3]", '"sasl.password" = "${P}"\n[kafka.producer]\n"ssl.key.password" = "${P}"\n[s3]')
            + 'access_key_id = "id"\nsecret_access_key = "${P}"\nsession_token = "${P}"\n'
            + '[sqs]\nqueue = "q"\naccess_key_id = "id"\nsecret_access_key = "${P}"\n'
            + '[format_options]\nkey = {password = "${P}"}\n'
        )
        config = parse(text, environment={"P": "hunter2"})
        assert config.s3.secret_access_key == "hunter2"
        assert config.cluster.properties("producer")["ssl.key.password"] == "hunter2"
        for shown in (
            to_toml(to_tables(config)),
            json.dumps(to_tables(config)),
            repr(dataclasses.replace(config, format_options={})),
        ):
            assert "hunter2" not in shown
        assert to_toml(to_tables(config)).count("********") == 6


class TestShowAndSchema:
    @pytest.mark.parametrize("text", [SMALL, WHOLE])
    def test_show_prints_the_same_configuration(self, text: str) -> None:
        config = parse(text, source="x")
        assert parse(to_toml(to_tables(config)), source="x") == config

    def test_every_setting_is_in_the_schema_with_its_reason(self) -> None:
        shown = {(entry.section, entry.name) for entry in entries()}
        assert ("[s3]", "part_size") in shown
        assert ("[[ingress.sources]]", "on_lost") in shown
        assert all(entry.doc for entry in entries())

    def test_the_template_is_read_once_filled_in(self) -> None:
        """Every default in the schema is the default of the setting."""
        filled = {"region": '"r"', "bucket": '"b"', "queue": '"q"', "topic": '"t"', "name": '"n"'}
        lines = []
        for line in template().splitlines():
            name, sign, rest = line.partition(" =")
            if sign and rest.strip() == "# required":
                lines.append(f"{name} = {filled[name]}")
            elif line.startswith("# ") and sign and " " not in name[2:] and rest.strip():
                lines.append(line[2:])
            elif line.startswith("["):
                lines.append(line.replace("[sync]", '[sync]\ndestination = {bucket = "other"}'))
                if line == "[kafka]":
                    lines.append('"bootstrap.servers" = "x"')
        config = parse("\n".join(lines))
        assert sum(" = " in line for line in lines) > 35
        bare = 'region = "r"\n[kafka]\n"bootstrap.servers" = "x"\n[s3]\nbucket = "b"\n'
        bare += '[egress.topics.name]\n[sqs]\nqueue = "q"\n'
        bare += '[[ingress.sources]]\nregion = "r"\ntopic = "t"\n[sync.destination]\nbucket = "other"\n'
        bare += '[[compaction.jobs]]\nname = "n"\n[retention.topics.name]\n'
        assert config == parse(bare)


# --- properties ------------------------------------------------------------------------------------------------------

WORDS = sorted(
    {
        name
        for cls in (Config, S3Settings, SqsSettings, EgressTopicSettings, IngressSource, RetentionRule)
        for name in settings_of(cls)
    }
    | {"topics", "sources", "defaults", "destination", "queue", "consumer", "producer", "bootstrap.servers", "group_id"}
    | {"acks", "group.id", "sasl.password", "compaction", "retention", "a", "^a.*", "^("}
)
texts = st.sampled_from(
    [
        "5m",
        "0s",
        "1GiB",
        "a",
        "^a.*",
        "^(",
        "{topic}",
        "${A}",
        "${",
        "earliest",
        "*:0-9",
        "stop",
        "read_committed",
        "\x7f\x00",
        "host:1",
    ]
) | st.text(max_size=6)
scalars: st.SearchStrategy[Any] = (
    texts
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.booleans()
    | st.datetimes()
    | st.datetimes(timezones=st.just(UTC))
    | st.dates()
    | st.times()
)
keys = st.sampled_from(WORDS) | st.text(max_size=3)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4), max_leaves=12
)


def places(tree: object, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of every table, and an unknown one."""
    if isinstance(tree, dict):
        for key in [*tree, "new key"]:
            yield (*path, key)
            yield from places(tree.get(key), (*path, key))
    elif isinstance(tree, list):
        for n, item in enumerate(tree):
            yield from places(item, (*path, n))


PLACES = list(places(tomllib.loads(WHOLE)))


@st.composite
def nearly_sound(draw: st.DrawFn) -> dict[str, Any]:
    """The sample with a few keys changed, left out or added, so that reading gets past the first problem."""
    tree: dict[str, Any] = tomllib.loads(WHOLE)
    for path in draw(st.lists(st.sampled_from(PLACES), max_size=3)):
        table: Any = tree
        try:
            for key in path[:-1]:
                table = table[key]
            if draw(st.booleans()):
                del table[path[-1]]
            else:
                table[draw(keys) if path[-1] == "new key" else path[-1]] = draw(values)
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change removed this table
    return tree


@property_examples()
@given(nearly_sound() | st.dictionaries(keys, values, max_size=6))
def test_any_tables_give_a_config_or_a_config_error(tables: dict[str, Any]) -> None:
    try:
        config = from_mapping(tables, environment={"A": "x"})
    except ConfigError as error:
        told = error.problems
        config = None
    else:
        told = ()
    assert (config is None) == bool(told)
    assert all(": " in problem for problem in told)
    if config is not None:
        shown = to_toml(to_tables(config))
        if "********" not in shown and "nan" not in shown:  # a mask is no secret, and nan equals nothing
            assert parse(shown, source="python", environment={}) == config


@given(st.text(max_size=30) | st.binary(max_size=30).map(lambda data: data.decode("latin-1")))
def test_any_text_gives_a_config_error(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


def test_dates_are_reported_as_dates() -> None:
    assert "a date" in str(from_error({"region": date(2026, 1, 1)}))


def from_error(tables: dict[str, object]) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        from_mapping(tables)
    return caught.value


class TestReplicationPolicies:
    @staticmethod
    def destination(*sources: str, more: str = "", topic: str = "t") -> str | None:
        settings = parse(ingress(*sources, more=more)).ingress
        assert settings is not None
        source = settings.source_of("a", topic)
        return None if source is None else source.destination(topic)

    @pytest.mark.parametrize(
        ("source", "more", "wanted"),
        [
            ("", "", "t.ingress"),
            ('replication_policy = "default"', "", "a.t"),
            ('replication_policy = "identity"', "", "t"),
            ("", 'replication_policy = "default"', "a.t"),
            ("", 'replication_policy = "default"\nreplication_policy_separator = "__"', "a__t"),
            ('replication_policy_separator = "-"', 'replication_policy = "default"', "a-t"),
            ('alias = "east"', 'replication_policy = "default"', "east.t"),
            ('replication_policy = "identity"', 'replication_policy = "default"', "t"),
            ('destination_topic = "{topic}.copy"', 'replication_policy = "default"', "t.copy"),
            ('replication_policy = "tests.formats.policies.user_policies:Suffixed"', "", "t-from-a"),
        ],
    )
    def test_names(self, source: str, more: str, wanted: str) -> None:
        assert self.destination(f'region = "a"\ntopic = "^t.*"\n{source}', more=more) == wanted

    def test_a_sources_policy_beats_the_destination_of_defaults(self) -> None:
        text = ingress('region = "a"\ntopic = "t"\nreplication_policy = "identity"')
        settings = parse(text + '[ingress.defaults]\ndestination_topic = "{topic}.copy"\n').ingress
        assert settings is not None
        assert settings.sources[0].destination("t") == "t"

    @pytest.mark.parametrize(("policy", "nothing"), [("LegacyReplicationPolicy", True), ("identity", False)])
    def test_the_legacy_policy_syncs_nothing_but_records(self, policy: str, nothing: bool) -> None:
        settings = parse(ingress('region = "a"\ntopic = "t"', more=f'replication_policy = "{policy}"')).ingress
        assert settings is not None
        assert settings.sources[0].syncs_nothing is nothing

    @pytest.mark.parametrize(
        ("source", "more", "wanted"),
        [
            ('replication_policy = "defalt"', "", "sources[0].replication_policy: 'defalt' is no replication policy"),
            ("", 'replication_policy = "x:"', "sources[0].replication_policy: 'x:' is not found"),
            ('replication_policy_separator = "/"', "", "replication_policy_separator: must be 1 to 64"),
            ('alias = "a.b"', 'replication_policy = "default"', "an alias must not contain the separator '.'"),
        ],
    )
    def test_one_problem(self, source: str, more: str, wanted: str) -> None:
        assert wanted in only(ingress(f'region = "a"\ntopic = "t"\n{source}', more=more))

    @pytest.mark.parametrize("policy", ["identity", "LegacyReplicationPolicy"])
    @pytest.mark.parametrize("topic", ["t", "^t.*"])
    def test_topics_are_never_merged(self, policy: str, topic: str) -> None:
        sources = [f'region = "{region}"\ntopic = "{topic}"' for region in ("a", "b")]
        more = f'replication_policy = "{policy}"'
        assert "allow_merge = true for both" in only(ingress(*sources, more=more))
        allowed = [f"{source}\nallow_merge = true" for source in sources]
        assert parse(ingress(*allowed, more=more)).ingress is not None
        parse(ingress(*sources, more='replication_policy = "default"'))

    def test_a_policy_that_fails_for_a_named_topic(self) -> None:
        text = ingress(
            'region = "a"\ntopic = "forbidden"\nreplication_policy = "tests.formats.policies.user_policies:Suffixed"'
        )
        assert "raised KeyError: 'no such customer'" in only(text)

    def test_explain_says_what_a_topic_is_called_and_what_comes_back(self) -> None:
        config = parse(ingress('region = "a"\ntopic = "^.*"', more='replication_policy = "default"'))
        [orders], [back] = explain_topic(config, "orders"), explain_topic(config, f"{config.region}.orders")
        assert orders.text == (
            "ingress from a: orders → a.orders: selected, by the expression ^.*; named by the replication policy "
            "'default' with alias 'a' and separator '.'"
        )
        assert (back.selected, back.destination) == (False, None)
        assert f"it went through {config.region} before" in back.why

    def test_another_region_may_not_have_this_ones_name(self) -> None:
        here = parse(ingress('region = "a"\ntopic = "t"')).region
        text = ingress(f'region = "a"\ntopic = "t"\nreplication_policy = "identity"\nalias = "{here}"')
        assert "sources[0].alias" in only(text)

    def test_show_reads_back(self) -> None:
        text = ingress('region = "a"\ntopic = "t"', more='replication_policy = "default"')
        config = parse(text)
        again = parse(to_toml(to_tables(config)))
        assert again.ingress == config.ingress


class TestFilters:
    EGRESS = (
        '[egress]\nexclude = ["^tmp.*", "secret"]\ngroups = ["^b.*"]\ngroups_exclude = ["bad"]\n[egress.topics."^.*"]\n'
    )

    def test_topics_and_groups_of_egress(self) -> None:
        config = parse(SMALL + self.EGRESS)

        def told(name: str) -> list[bool]:
            return [answer.selected for answer in (*explain_topic(config, name), *explain_group(config, name))]

        assert [told(name) for name in ("billing", "tmp1", "secret", "bad", "x.replica")] == [
            [True, True],
            [False, False],
            [False, False],
            [True, False],
            [False, False],
        ]
        assert not explain_group(config, "replicator.egress")[0].selected

    def test_no_group_by_default(self) -> None:
        config = parse(SMALL + '[egress.topics."^.*"]\n')
        assert [answer.text for answer in explain_group(config, "billing")] == [
            "groups of us-east-1: billing: not selected, because [egress] groups is empty: no group is replicated"
        ]

    def test_an_exclude_belongs_to_its_source(self) -> None:
        source = 'region = "a"\ntopic = "^t.*"\nexclude = ["^t2"]'
        settings = parse(ingress(source, 'region = "a"\ntopic = "t3"\nexclude = ["t4"]')).ingress
        assert settings is not None
        assert [settings.source_of("a", name) is not None for name in ("t1", "t2", "t3", "t.replica")] == [
            True,
            False,
            True,
            False,
        ]

    @pytest.mark.parametrize(
        ("text", "wanted"),
        [
            ('exclude = ["^("]', "egress.exclude: item 0: '^(' is not an expression"),
            ("groups = [1]", "egress.groups: item 0: must be a text"),
            ('groups = [" "]', "egress.groups: item 0: a group id must not be empty"),
            ('topic_filter = "x"', "egress.topic_filter: 'x' is not found: not package.module:Class"),
        ],
    )
    def test_one_problem(self, text: str, wanted: str) -> None:
        assert wanted in only(f'{SMALL}[egress]\n{text}\n[egress.topics."^.*"]\n')

    def test_a_users_filter(self) -> None:
        name = "tests.formats.policies.user_policies:NoTemporary"
        config = parse(SMALL + f'[egress]\ntopic_filter = "{name}"\n[egress.topics."^.*"]\n')
        assert not explain_topic(config, "tmp1")[0].selected
        config = parse(ingress(f'region = "a"\ntopic = "^.*"\ntopic_filter = "{name}"'))
        assert [explain_topic(config, topic)[0].selected for topic in ("tmp1", "t")] == [False, True]

    def test_show_reads_back(self) -> None:
        config = parse(SMALL + self.EGRESS)
        assert parse(to_toml(to_tables(config))).egress == config.egress
