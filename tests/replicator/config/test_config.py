"""Reading the configuration: what it says, every problem that it has, secrets, and what is shown of it."""

from __future__ import annotations

import dataclasses
import json
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from formats.errors import ConfigError
from formats.segment import OffsetRange
from formats.topic_selection import TopicPattern
from infra.settings.field import settings_of
from infra.settings.secrets import is_secret
from ingress.settings import IngressSettings
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
from replicator.config.reference import entries, template
from replicator.config.show import to_tables, to_toml
from replicator.config.unknown_key import unknown
from tests.replicator.config.config_texts import SMALL, WHOLE, only, problems

MIB = 1024 * 1024
DEPLOY = Path(__file__).parents[3] / "infra" / "deploy"


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
        assert config.own_topics == {
            "replicator.segmentevents",
            "replicator.checkpoint",
            "replicator.offsetmap",
            "replicator.ledger",
        }
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
        with pytest.raises(ConfigError, match="is a folder; name a file"):
            load(tmp_path)

    @pytest.mark.parametrize("name", ["us-east-1", "eu-west-1"])
    def test_the_examples_of_two_regions(self, name: str) -> None:
        config = parse((DEPLOY / f"{name}.toml").read_text(), environment={"KAFKA_PASSWORD": "x"})
        assert config.region == name
        assert config.kafka is not None
        assert config.kafka.base["sasl.password"] == "x"
        assert config.egress is not None
        assert config.ingress is not None


@pytest.mark.parametrize(
    "given",
    ['[compaction]\nmaster = "spark://h:1"', "[compaction]\nship_packages = true", '[compaction.spark]\n"a.b" = "c"'],
)
def test_where_spark_works_needs_no_jobs(given: str) -> None:
    compaction = parse(SMALL + given).compaction
    assert compaction is not None
    assert compaction.jobs == ()


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

    @pytest.mark.parametrize(
        ("added", "wanted"),
        [
            (
                '[ingress]\nlost_segment_timeout = "5m"',
                'ingress.lost_segment_timeout: belongs one table deeper, into "sources" or "defaults"',
            ),
            (
                '[egress]\nmax_segment_age = "5m"',
                'egress.max_segment_age: belongs one table deeper, into "topics" or "defaults"',
            ),
            (
                '[retention]\nmax_age = "5d"',
                'retention.max_age: belongs one table deeper, into "topics" or "defaults"',
            ),
            (
                "[compaction]\nmax_level = 1",
                'compaction.max_level: belongs one table deeper, into "jobs" or "defaults"',
            ),
        ],
    )
    def test_a_key_that_is_one_table_too_high(self, added: str, wanted: str) -> None:
        assert wanted in problems(f'region = "a"\n[s3]\nbucket = "b"\n{added}')

    def test_of_many_keys_the_nearest_are_named(self) -> None:
        (listed,) = [one for one in problems("[ingress]\nmessage_age = 1") if one.startswith("ingress.message_age: ")]
        named, _, rest = listed.partition("known here: ")[2].partition("; ")
        keys = named.split(", ")
        assert len(listed) < 200
        assert len(keys) == len(set(keys)) == 5
        assert {*keys} < {*settings_of(IngressSettings), "sources", "defaults"}
        others = len({*settings_of(IngressSettings), "sources", "defaults"}) - 5
        assert rest == f"`replicator config schema` lists the other {others}"

    def test_few_keys_are_all_named_the_nearest_first(self) -> None:
        (listed,) = [one for one in problems("[log]\nzzt = 1") if one.startswith("log.zzt: ")]
        assert {*listed.partition("known here: ")[2].split(", ")} == {*settings_of(LogSettings)}
        assert unknown("abcd", ["zzzz", "aqqq", "abqqqq"]) == "unknown key; known here: abqqqq, aqqq, zzzz"

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
            ('[egress.topics.a]\nmax_segment_age = "0s"', "max_segment_age: must be at least 100ms, not 0s"),
            ('[egress.topics.a]\nmax_segment_age = "9999d"', "max_segment_age: must be at most 3650d"),
            ('[egress.topics.a]\nmax_segment_size = "1TiB"', "may not fit into 10_000 parts of s3.part_size (16MiB)"),
            ("[egress.topics.a]\ncompression_level = 23", "compression_level: must be at most 22, not 23"),
            (
                '[egress.topics.a]\ncompression_level = 3\n[format_options]\ncompression = "gzip"',
                "egress.topics.a.compression_level: is a level of zstd, and segments are 'parquet' with 'gzip'",
            ),
            (
                '[[compaction.jobs]]\nname = "j"\ncompression_level = 23',
                "compaction.jobs[0].compression_level: must be at most 22, not 23",
            ),
            (
                '[[compaction.jobs]]\nname = "j"\ncompression_level = 9\n[format_options]\ncompression = "snappy"',
                "compaction.jobs[0].compression_level: is a level of zstd, and segments are 'parquet' with 'snappy'",
            ),
            (
                '[egress.topics.a]\n[egress]\ngroups = ["g"]\nheartbeat_interval = "0s"',
                'egress.groups: must be empty with heartbeat_interval = "0s"',
            ),
            (
                '[egress.topics.a]\n[egress]\non_archive_behind = "stpo"',
                "\"stop\" or \"continue\", not 'stpo' (did you mean 'stop'?)",
            ),
            ('[log]\nlevel = "INFO"', 'log.level: must be "debug" or "info" or "warning" or "error", not \'INFO\''),
            ('[metrics]\nlisten = "somewhere"', 'metrics.listen: must be "host:port"'),
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
            ('role_arn = "arn:aws:iam::1:role/x"', "s3.role_arn: must be the ARN of a role"),
            ('external_id = "xy"', "s3.external_id: needs role_arn"),
            ('role_session_name = "xy"', "s3.role_session_name: needs role_arn"),
            ('role_duration = "10m"', "s3.role_duration: must be at least 30m"),
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

    def test_a_profile_and_keys_contradict_each_other(self) -> None:
        with pytest.raises(ValueError, match="profile: stands beside access_key_id"):
            S3Settings(bucket="b", profile="x", access_key_id="y", secret_access_key="z")

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
        filled = {"region": '"r"', "bucket": '"b"', "queue": '"q"', "topic": '"t"', "name": '"n"', "url": '"http://r"'}
        filled |= {"key": '"file"\nkey_file = "/keys.toml"'}
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
        bare += '[[compaction.jobs]]\nname = "n"\n[retention.topics.name]\n[schema_registry]\nurl = "http://r"\n'
        bare += '[encryption]\nkey = "file"\nkey_file = "/keys.toml"\n'
        assert config == parse(bare)


class TestMetricsListener:
    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            ('listen = "9464"\ntls_cert = "a.pem"', "metrics.tls_cert: needs tls_key; give both, or neither"),
            ('listen = "9464"\nusername = "p"', "metrics.username: needs password; give both, or neither"),
            ('listen = "9464"\nusername = "p:q"\npassword = "${P}"', "metrics.username: must not contain a colon"),
            (
                'username = "p"\npassword = "${P}"',
                "metrics.listen: missing: what is secured is not served; set it, or take the rest of [metrics] out",
            ),
            (
                'listen = "9464"\nusername = "p"\npassword = "literal"',
                'metrics.password: is a secret and must not be in the file; write "${PASSWORD}" and set that',
            ),
        ],
    )
    def test_what_secures_it_is_whole(self, lines: str, problem: str) -> None:
        assert problem in problems(f"{SMALL}\n[metrics]\n{lines}\n", {"P": "secret"})

    def test_its_password_is_not_shown(self) -> None:
        text = f'{SMALL}\n[metrics]\nlisten = "9464"\nusername = "p"\npassword = "${{P}}"\n'
        config = parse(text, environment={"P": "planted"})
        assert config.metrics.password == "planted"
        assert "planted" not in repr(config) + to_toml(to_tables(config))


SYNC = """
[sqs]
queue = "events"
region_name = "us-east-1"
[sync.destination]
bucket = "theirs"
[sync.queue]
region_name = "{region}"
queue = "{queue}"
"""


class TestQueueOfSync:
    """A message reaches one reader only."""

    def test_a_name_and_its_url_are_one_queue(self) -> None:
        url = "https://sqs.us-east-1.amazonaws.com/123456789012/events"
        assert any("is the queue of [sqs]" in one for one in problems(SYNC.format(region="us-east-1", queue=url)))

    def test_a_name_in_two_regions_is_two_queues(self) -> None:
        text = f'region = "a"\n[s3]\nbucket = "ours"\n{SYNC.format(region="eu-west-1", queue="events")}'
        found = parse(text)
        assert found.sync is not None
        assert found.sync.queue is not None
        assert found.sync.queue.region_name == "eu-west-1"
