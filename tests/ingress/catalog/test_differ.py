"""Desired minus actual, row by row; and whatever the difference, applying it once leaves nothing to do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from formats.policies.topic_configs import ConfigChange, ConfigSource, ConfigValue
from ingress.catalog.differ import (
    ActualTopic,
    CatalogPlan,
    ChangeConfigs,
    CreateTopic,
    DataAge,
    DeleteTopic,
    DesiredTopic,
    GrowTopic,
    plan_changes,
)
from tests.examples import property_examples

WANTED = DesiredTopic(name="a.orders", source="a/orders", partitions=3, configs={"retention.ms": "5"})
FIVE = ConfigValue("5", ConfigSource.TOPIC)
HERE = ActualTopic(name="a.orders", topic_id="id", partitions=3, configs={"retention.ms": FIVE})
OURS = {"a.orders": "id"}


def plan(wanted: DesiredTopic, here: ActualTopic | None, owned: dict[str, str] = OURS) -> CatalogPlan:
    return plan_changes([wanted], {} if here is None else {here.name: here}, owned, keep={})


def test_nothing_to_do() -> None:
    assert plan(WANTED, HERE) == CatalogPlan()


def test_an_absent_topic_is_created_with_its_configs() -> None:
    assert plan(WANTED, None).changes == (CreateTopic("a.orders", 3, {"retention.ms": "5"}),)
    assert plan(replace(WANTED, is_removed=True), None) == CatalogPlan(), "but not one that the source has no longer"


def test_a_topic_of_ours_grows_and_another_is_reported() -> None:
    small = replace(HERE, partitions=1)
    assert plan(WANTED, small).changes == (GrowTopic("a.orders", 1, 3, small.topic_id),)
    for owned in ({}, {"a.orders": "an earlier id"}):
        found = plan(WANTED, small, owned)
        assert found.changes == ()
        assert "a.orders: has 1 partitions, a/orders has 3, and we did not create it: add" in str(found.reports[0])


def test_no_topic_shrinks() -> None:
    found = plan(WANTED, replace(HERE, partitions=4))
    assert (found.changes, [str(one) for one in found.reports]) == (
        (),
        ["a.orders: has 4 partitions, a/orders has 3; topics never shrink"],
    )


def test_configs_are_set_and_unset_where_the_topic_is_ours() -> None:
    actual = {"retention.ms": ConfigValue("9", ConfigSource.TOPIC), "segment.bytes": FIVE}
    wanted = replace(WANTED, without=frozenset({"segment.bytes"}))
    here = replace(HERE, configs=actual)
    change = ConfigChange({"retention.ms": "5"}, frozenset({"segment.bytes"}))
    assert plan(wanted, here).changes == (ChangeConfigs("a.orders", change, "id"),)
    found = plan(wanted, here, {})
    assert found.changes == ()
    assert "its configs retention.ms, segment.bytes differ" in str(found.reports[0])
    kept = plan_changes([wanted], {here.name: here}, OURS, keep={"a.orders": ["retention.ms", "segment.bytes"]})
    assert kept == CatalogPlan()


def test_what_only_an_operator_set_is_reported_and_kept() -> None:
    actual = {"retention.ms": ConfigValue("9", ConfigSource.TOPIC), "segment.bytes": FIVE, "segment.ms": FIVE}
    wanted = replace(WANTED, without=frozenset({"segment.bytes", "segment.ms"}))
    here = replace(HERE, configs=actual)

    def found(set_by_us: dict[str, list[str]] | None, owned: dict[str, str] = OURS) -> CatalogPlan:
        return plan_changes([wanted], {here.name: here}, owned, keep={}, set_by_us=set_by_us)

    some = found({"a.orders": ["segment.ms"]})
    change = ConfigChange({"retention.ms": "5"}, frozenset({"segment.ms"}))
    assert some.changes == (ChangeConfigs("a.orders", change, "id"),)
    [report] = some.reports
    assert "has segment.bytes=5, which a/orders has not and ingress did not set: kept" in str(report)
    both = ConfigChange({"retention.ms": "5"}, frozenset({"segment.bytes", "segment.ms"}))
    assert found(None) == CatalogPlan((ChangeConfigs("a.orders", both, "id"),))
    assert found({}, owned={}).changes == ()


def test_a_topic_that_is_gone_at_the_source_stays() -> None:
    found = plan(replace(WANTED, is_removed=True), HERE)
    assert (found.changes, len(found.reports)) == ((), 1)


def test_it_is_deleted_only_where_nothing_stands_against_it_and_it_is_ours() -> None:
    gone = replace(WANTED, is_removed=True)

    def found(obstacles: dict[str, str], owned: dict[str, str] = OURS, here: ActualTopic = HERE) -> CatalogPlan:
        return plan_changes([gone], {here.name: here}, owned, keep={}, obstacles=obstacles)

    assert found({"a.orders": ""}) == CatalogPlan((DeleteTopic("a.orders", "id", "a/orders"),))
    for kept in (
        found({}),
        found({"a.orders": "why"}),
        found({"a.orders": ""}, {"a.orders": "an earlier id"}),
        found({"a.orders": ""}, {"a.orders": ""}, replace(HERE, topic_id="")),
    ):
        assert (kept.changes, len(kept.reports)) == ((), 1)
    assert "this topic is kept: why" in str(found({"a.orders": "why"}).reports[0])


def aged(retention: str, source: ConfigSource, age_ms: int, *, keep: bool, policy: str = "delete") -> list[str]:
    """What is reported of a topic with this retention now, whose source keeps records for 5 ms."""
    wanted = replace(WANTED, age=DataAge(datetime(2026, 1, 2, tzinfo=UTC), age_ms))
    configs = {"retention.ms": ConfigValue(retention, source), "cleanup.policy": ConfigValue(policy, source)}
    here = replace(HERE, configs=configs)
    kept = {here.name: ["retention.ms"]} if keep else {}
    return [str(one) for one in plan_changes([wanted], {here.name: here}, OURS, keep=kept).reports]


def test_a_retention_below_the_age_of_what_is_delivered_is_reported_before_it_holds_and_while_it_does() -> None:
    for keep, now in ((True, "-1"), (False, "-1"), (False, "5")):
        [report] = aged(now, ConfigSource.TOPIC, 6, keep=keep)
        assert "keeps records for 5 ms from the end of its first copy on" in report
        assert "2026-01-02T00:00:00+00:00" in report
        assert aged(now, ConfigSource.TOPIC, 5, keep=keep) == []
    assert aged("5", ConfigSource.TOPIC, 6, keep=False, policy="compact") == [], "it deletes nothing by age"


names = st.sampled_from(["a", "b", "c"])
configs = st.dictionaries(st.sampled_from(["x", "y", "z"]), st.sampled_from("12"))
desired = st.lists(
    st.builds(
        DesiredTopic,
        name=names,
        source=st.just("s/t"),
        partitions=st.integers(1, 4),
        configs=configs,
        is_removed=st.booleans(),
    ),
    unique_by=lambda one: one.name,
)
actual = st.lists(
    st.builds(
        ActualTopic,
        name=names,
        topic_id=st.sampled_from(["1", "2"]),
        partitions=st.integers(1, 4),
        configs=st.none()
        | configs.map(lambda some: {name: ConfigValue(value, ConfigSource.TOPIC) for name, value in some.items()}),
    ),
    unique_by=lambda one: one.name,
)


@property_examples()
@given(desired, actual, st.dictionaries(names, st.sampled_from(["1", "2"])))
def test_applied_once_nothing_is_left_and_only_what_is_ours_is_altered(
    desired: list[DesiredTopic], actual: list[ActualTopic], owned: dict[str, str]
) -> None:
    here = {one.name: one for one in actual}
    found = plan_changes(desired, here, owned, keep={})
    after, owned = dict(here), dict(owned)
    for change in found.changes:
        match change:
            case CreateTopic(name, partitions, configs_):
                assert name not in here
                made = {n: ConfigValue(value, ConfigSource.TOPIC) for n, value in configs_.items()}
                after[name] = ActualTopic(name=name, topic_id="new", partitions=partitions, configs=made)
                owned[name] = "new"
            case GrowTopic(name, before, partitions, _):
                assert owned[name] == here[name].topic_id
                assert before == here[name].partitions < partitions
                after[name] = replace(after[name], partitions=partitions)
            case ChangeConfigs(name, change_, topic_id):
                assert topic_id == here[name].topic_id
                assert owned[name] == here[name].topic_id
                known = {n: v for n, v in (after[name].configs or {}).items() if n not in change_.unset}
                known |= {n: ConfigValue(value, ConfigSource.TOPIC) for n, value in change_.set.items()}
                after[name] = replace(after[name], configs=known)
    again = plan_changes(desired, after, owned, keep={})
    assert again.changes == ()
    assert again.reports == found.reports
