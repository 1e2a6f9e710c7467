"""Which configs cross with a topic, in both directions of every change."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.topic_configs import (
    ConfigFilter,
    ConfigSource,
    ConfigValue,
    UseDefaults,
    config_change,
    wanted_configs,
)

TOPIC, DEFAULT = ConfigSource.TOPIC, ConfigSource.DEFAULT
ALL = ConfigFilter()

names = st.sampled_from(["retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas", "compression.type"])
values = st.builds(ConfigValue, st.sampled_from("abc"), st.sampled_from(ConfigSource))
configs = st.dictionaries(names, values)


def wanted(source: dict[str, ConfigValue], use_defaults: UseDefaults = "target") -> tuple[dict[str, str], set[str]]:
    set_, unset = wanted_configs(source, ALL, use_defaults)
    return dict(set_), set(unset)


def test_a_topics_own_configs_cross_and_defaults_unset() -> None:
    source = {"retention.ms": ConfigValue("5", TOPIC), "segment.bytes": ConfigValue("9", DEFAULT)}
    assert wanted(source) == ({"retention.ms": "5"}, {"segment.bytes"})
    assert wanted(source, "source") == ({"retention.ms": "5", "segment.bytes": "9"}, set())


@pytest.mark.parametrize("source", [ConfigSource.STATIC_BROKER, ConfigSource.DYNAMIC_BROKER, ConfigSource.UNKNOWN])
def test_configs_of_the_sources_brokers_do_not_become_the_topics(source: ConfigSource) -> None:
    assert wanted({"retention.ms": ConfigValue("5", source)}, "source") == ({}, {"retention.ms"})


@pytest.mark.parametrize("name", ["min.insync.replicas", "message.timestamp.type", "message.timestamp.after.max.ms"])
def test_excluded_configs_are_never_touched(name: str) -> None:
    assert wanted({name: ConfigValue("1", TOPIC)}) == ({}, set())


def test_an_expression_that_does_not_compile_is_named() -> None:
    with pytest.raises(ValueError, match=r"'\[' is not an expression"):
        ConfigFilter(["["])


def test_an_expression_means_the_same_beside_others() -> None:
    """Joined by `|`, flags are an error, and so are names of groups that recur; a number is that of another's group."""
    found = ConfigFilter(["segment[.].*", "(?i)RETENTION[.](?P<unit>.*)", "(?P<unit>a)b", r"(c)lean(up)[.]\1\2"])
    names = ("segment.ms", "retention.ms", "ab", "cleanup.cup", "cleanup.policy")
    assert [name for name in names if found.crosses(name)] == ["cleanup.policy"]


@given(configs, configs, st.sampled_from(["target", "source"]))
def test_a_change_makes_the_target_as_wanted_and_then_nothing_is_left(
    source: dict[str, ConfigValue], actual: dict[str, ConfigValue], use_defaults: UseDefaults
) -> None:
    set_, unset = wanted_configs(source, ALL, use_defaults)
    change = config_change(set_, unset, actual)
    after = {name: value for name, value in actual.items() if name not in change.unset}
    after |= {name: ConfigValue(value, TOPIC) for name, value in change.set.items()}
    assert all(after[name].value == value for name, value in set_.items())
    assert not any(after[name].source is TOPIC for name in unset & after.keys())
    assert not config_change(set_, unset, after)


def test_what_is_decided_elsewhere_is_kept() -> None:
    actual = {"retention.ms": ConfigValue("-1", TOPIC)}
    assert not config_change({"retention.ms": "5"}, [], actual, keep=["retention.ms"])
    assert not config_change({}, ["retention.ms"], actual, keep=["retention.ms"])
