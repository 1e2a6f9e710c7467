"""Properties of reading any configuration."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import ConfigError
from infra.settings.field import settings_of
from replicator.config import (
    Config,
    EgressTopicSettings,
    IngressSource,
    RetentionRule,
    S3Settings,
    SqsSettings,
    from_mapping,
    parse,
)
from replicator.config.show import to_tables, to_toml
from tests.examples import property_examples
from tests.replicator.config.config_texts import WHOLE

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
        problems = error.problems
        config = None
    else:
        problems = ()
    assert (config is None) == bool(problems)
    assert all(": " in problem for problem in problems)
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
