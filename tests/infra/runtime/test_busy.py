"""Values are busy from when they are handed out until they are found at rest."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from infra.runtime.busy import BusyValues


@dataclass(eq=False)
class Value:
    is_at_rest: bool = True


def of(*keys: str) -> tuple[BusyValues[str, Value], dict[str, Value]]:
    values, made = BusyValues[str, Value](), {key: Value() for key in keys}
    for key, value in made.items():
        values.put(key, value)
    return values, made


def test_a_new_value_is_busy_until_it_is_found_at_rest() -> None:
    values, made = of("a", "b")
    made["b"].is_at_rest = False
    assert values.busy() == [*made.values()]
    values.settle()
    assert (values.busy(), values.left_out()) == ([made["b"]], [made["a"]])


def test_what_is_handed_out_is_busy_again_and_what_is_only_read_is_not() -> None:
    values, made = of("a", "b")
    values.settle()
    assert values.all == made
    assert values.get("c") is None
    assert values.busy() == []
    assert values.get("a") is made["a"]
    assert values.busy() == [made["a"]]
    values.settle()
    assert list(values) == values.busy() == [*made.values()]


def test_a_value_that_is_removed_or_replaced_is_not_busy_any_more() -> None:
    values, made = of("a", "b")
    values.remove("a")
    other = Value()
    values.put("b", other)
    assert values.busy() == [other]
    with pytest.raises(KeyError):
        values.remove("a")
    assert made["b"] not in values.busy()


def test_values_may_change_during_an_iteration() -> None:
    values, made = of("a", "b")
    for value in values:
        values.put(f"after {len(values.all)}", Value())
        assert value in made.values()
    assert len(values.all) == 4
