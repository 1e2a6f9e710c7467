"""What a destination is created with, by its source's configs."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from formats.policies.topic_configs import CREATED_WITH, DEFAULT_EXCLUDES, ConfigFilter, ConfigSource, ConfigValue
from replicator.restore.choices import ConfigMode
from replicator.restore.creation import TopicCreation, topic_creation
from tests.examples import property_examples

NAMES = st.sampled_from(
    [*CREATED_WITH, *DEFAULT_EXCLUDES, "cleanup.policy", "max.message.bytes", "segment.bytes", "compression.type"]
)
CONFIGS = st.dictionaries(
    NAMES, st.builds(ConfigValue, st.sampled_from(["1", "2000000", "compact"]), st.sampled_from(ConfigSource))
)
ROOM = st.sampled_from([{}, {"max.message.bytes": "1500000"}])
GIVEN = st.dictionaries(NAMES, st.just("9"), max_size=2)


def created(
    mode: ConfigMode,
    source: Mapping[str, ConfigValue] | None = None,
    *,
    room: Mapping[str, str] | None = None,
    given: Mapping[str, str] | None = None,
) -> TopicCreation:
    return topic_creation(mode, source=source, room=room or {}, given=given or {}, config_filter=ConfigFilter())


def own(**configs: str) -> dict[str, ConfigValue]:
    return {name.replace("_", "."): ConfigValue(value, ConfigSource.TOPIC) for name, value in configs.items()}


@property_examples()
@given(st.sampled_from(ConfigMode), st.none() | CONFIGS, ROOM, GIVEN)
def test_what_is_given_wins_and_what_keeps_records_beats_the_source(
    mode: ConfigMode, source: Mapping[str, ConfigValue] | None, room: Mapping[str, str], given: Mapping[str, str]
) -> None:
    found = created(mode, source, room=room, given=given)
    assert {name: found.configs[name] for name in given} == given
    if mode != ConfigMode.NONE:
        assert {name: found.configs[name] for name in CREATED_WITH} == {**CREATED_WITH, **_only(given, CREATED_WITH)}
    if room and "max.message.bytes" not in given:
        assert int(found.configs["max.message.bytes"]) >= int(room["max.message.bytes"])
    if mode != ConfigMode.ARCHIVE or source is None:
        assert found == TopicCreation(configs=found.configs), "of the source nothing is known"
        assert set(found.configs) == {*room, *given, *(() if mode == ConfigMode.NONE else CREATED_WITH)}


@property_examples()
@given(CONFIGS, ROOM, GIVEN)
def test_every_config_that_was_set_at_the_source_is_explained(
    source: Mapping[str, ConfigValue], room: Mapping[str, str], given: Mapping[str, str]
) -> None:
    found = created(ConfigMode.ARCHIVE, source, room=room, given=given)
    for name, config in source.items():
        if config.source is not ConfigSource.TOPIC:
            assert name not in found.source
            assert name not in found.excluded
        elif found.configs.get(name) == config.value:
            assert name in found.source or name in CREATED_WITH or name in given or name in room
        else:
            assert (name in found.held) != (name in found.excluded)
            assert {**found.held, **found.excluded}[name] == config.value


def test_as_the_source_with_retention_held() -> None:
    source = own(cleanup_policy="compact", retention_ms="1000", min_insync_replicas="2", max_message_bytes="3000000")
    source["segment.bytes"] = ConfigValue("5", ConfigSource.STATIC_BROKER)
    found = created(ConfigMode.ARCHIVE, source, room={"max.message.bytes": "2000000"})
    assert found.configs == {**CREATED_WITH, "cleanup.policy": "compact", "max.message.bytes": "3000000"}
    assert found.source == {"cleanup.policy": "compact", "max.message.bytes": "3000000"}
    assert found.held == {"retention.ms": "1000"}
    assert found.excluded == {"min.insync.replicas": "2"}


def test_a_retention_by_default_of_the_source_is_stated_too() -> None:
    source = {"retention.ms": ConfigValue("604800000", ConfigSource.DEFAULT)}
    assert created(ConfigMode.ARCHIVE, source).held == {"retention.ms": "604800000"}


def test_a_size_that_is_no_number_leaves_room() -> None:
    found = created(ConfigMode.ARCHIVE, own(max_message_bytes="much"), room={"max.message.bytes": "7"})
    assert (found.configs["max.message.bytes"], found.held) == ("7", {"max.message.bytes": "much"})


def test_without_what_the_target_refuses() -> None:
    found = created(ConfigMode.ARCHIVE, own(cleanup_policy="compact", segment_bytes="5")).without(
        {"segment.bytes": "why"}
    )
    assert found.source == {"cleanup.policy": "compact"}
    assert "segment.bytes" not in found.configs
    assert found.refused == {"segment.bytes": "why"}


def _only(configs: Mapping[str, str], names: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in configs.items() if name in names}
