"""Each setting of a file with its value, where that comes from, and whether a change of it reloads."""

from __future__ import annotations

import tomllib

import pytest

from infra.settings.secrets import MASK
from replicator.config import parse
from replicator.config.explain_settings import SettingExplanation, explain_settings, named, setting_names
from replicator.config.flows import tables_of
from replicator.config.show import to_tables, to_toml
from tests.replicator.config.config_texts import WHOLE

TEXT = """
region = "us"
[kafka]
bootstrap.servers = "one:9092"
"sasl.password" = "${KAFKA_PASSWORD}"
[kafka.consumer]
"fetch.min.bytes" = 2
[s3]
bucket = "archive-${STAGE}"
prefix = "$${data}"
[egress]
exclude = ["plain", "${STAGE}.orders"]
[egress.defaults]
max_segment_age = "3m"
[egress.topics."orders.eu"]
max_segment_size = "1MiB"
[sqs]
queue = "q"
[ingress]
replication_policy = "default"
[ingress.defaults]
on_lost = "skip"
[[ingress.sources]]
region = "eu"
topic = "^a.*"
"""
ENVIRONMENT = {"KAFKA_PASSWORD": "hidden", "STAGE": "test"}


@pytest.fixture(scope="module")
def found() -> list[SettingExplanation]:
    return list(explain_settings(parse(TEXT, environment=ENVIRONMENT), tables_of(tomllib.loads(TEXT), None)))


@pytest.mark.parametrize(
    ("name", "value", "origin", "reloads"),
    [
        ("region", '"us"', "from the file", False),
        ('kafka."bootstrap.servers"', '"one:9092"', "from the file", False),
        ('kafka."sasl.password"', f'"{MASK}"', "from the environment, KAFKA_PASSWORD", False),
        ('kafka.consumer."fetch.min.bytes"', '"2"', "from the file", False),
        ("s3.bucket", '"archive-test"', "from the environment, STAGE", False),
        ("s3.prefix", '"$${data}"', "from the file", False),
        ("s3.part_size", '"16MiB"', "the default", False),
        ("s3.sse", None, "the default", False),
        ("egress.exclude", '["plain", "test.orders"]', "from the environment, STAGE", True),
        ("egress.group_id", '"replicator.egress"', "the default", False),
        ('egress.topics."orders.eu".max_segment_size', '"1MiB"', "from the file", True),
        (
            'egress.topics."orders.eu".max_segment_age',
            '"3m"',
            "from the file, by egress.defaults.max_segment_age",
            True,
        ),
        ('egress.topics."orders.eu".start', '"earliest"', "the default", True),
        ("ingress.sources[0].topic", '"^a.*"', "from the file", True),
        ("ingress.sources[0].on_lost", '"skip"', "from the file, by ingress.defaults.on_lost", True),
        (
            "ingress.sources[0].replication_policy",
            '"default"',
            "from the file, by ingress.replication_policy",
            True,
        ),
        ("log.level", None, "the default", False),
    ],
)
def test_each_setting(
    found: list[SettingExplanation], name: str, value: str | None, origin: str, reloads: bool
) -> None:
    [one] = [one for one in found if one.name == name]
    assert (one.value, one.origin, one.reloads) == (value, origin, reloads)
    assert one.doc


def test_every_value_that_is_shown_is_explained() -> None:
    """What `config show` prints is all there is."""
    config = parse(WHOLE, environment={})
    names = {
        one.name for one in explain_settings(config, tables_of(tomllib.loads(WHOLE), None)) if one.value is not None
    }
    shown = tomllib.loads(to_toml(to_tables(config)))
    assert {"egress", "ingress", "sync", "compaction"} & shown.keys() == {"egress", "ingress", "sync"}
    for section in ("s3", "sqs", "ingress", "egress"):
        flat = {f"{section}.{name}" for name, value in shown[section].items() if not isinstance(value, list | dict)}
        assert flat - names == set()


def test_no_secret_is_in_it(found: list[SettingExplanation]) -> None:
    assert [one.name for one in found if "hidden" in one.text] == []


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("egress.exclude", ["egress.exclude"]),
        ("exclude", ["egress.exclude", "ingress.sources[0].exclude"]),
        ("kafka.bootstrap.servers", ['kafka."bootstrap.servers"']),
        ("kafka", ['kafka."bootstrap.servers"', 'kafka."sasl.password"', 'kafka.consumer."fetch.min.bytes"']),
        ("log", ["log.level", "log.format"]),
        ("sync.interval", ["sync.interval"]),
        ("nothing", []),
    ],
)
def test_a_name_stands_for(found: list[SettingExplanation], name: str, wanted: list[str]) -> None:
    assert [one.name for one in named(name, found)] == wanted


def test_a_setting_of_a_section_that_the_file_does_not_have(found: list[SettingExplanation]) -> None:
    [one] = named("sync.interval", found)
    assert one.text.splitlines() == [
        'sync.interval = "1m"',
        "    how often both buckets are listed",
        "    the default; the file has no [sync]; a change needs a restart",
    ]


def test_every_setting_has_a_name_to_ask_for(found: list[SettingExplanation]) -> None:
    assert [name for name in setting_names() if not named(name, []) and not named(name, found)] == []
