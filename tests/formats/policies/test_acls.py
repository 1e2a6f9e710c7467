"""The table of MirrorMaker 2's ACL sync, row by row, and our other modes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.policies.acls import AclBinding, AclMode, WriteGrants, mirrored, protecting

ALICE = AclBinding(
    resource_type="TOPIC",
    resource_name="orders",
    pattern_type="LITERAL",
    principal="User:alice",
    host="*",
    operation="READ",
    permission="ALLOW",
)
REMOTE = "a.orders"


ONLY_ORDERS = {"orders": [REMOTE]}


def one(binding: AclBinding, mode: AclMode = "mirror") -> AclBinding | None:
    found = mirrored([binding], mode, ONLY_ORDERS)
    assert len(found) <= 1
    return next(iter(found), None)


@pytest.mark.parametrize("operation", ["READ", "DESCRIBE", "DESCRIBE_CONFIGS", "CREATE", "DELETE", "ALTER"])
@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_most_bindings_of_a_literal_topic_cross_as_they_are(operation: str, permission: str) -> None:
    binding = replace(ALICE, operation=operation, permission=permission)
    assert one(binding) == replace(binding, resource_name=REMOTE)


def test_all_becomes_read_and_write_is_left_out() -> None:
    assert one(replace(ALICE, operation="ALL")) == replace(ALICE, resource_name=REMOTE)
    assert one(replace(ALICE, operation="WRITE")) is None


@pytest.mark.parametrize("operation", ["ALL", "WRITE"])
def test_a_denial_crosses_whole(operation: str) -> None:
    binding = replace(ALICE, operation=operation, permission="DENY")
    assert one(binding) == replace(binding, resource_name=REMOTE)


@pytest.mark.parametrize(
    "binding",
    [
        replace(ALICE, pattern_type="PREFIXED"),
        replace(ALICE, resource_type="GROUP"),
        replace(ALICE, resource_name="other"),
    ],
    ids=["prefixed", "group", "not replicated"],
)
def test_what_never_crosses(binding: AclBinding) -> None:
    assert one(binding) is None


@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
@pytest.mark.parametrize("operation", ["READ", "ALL"])
def test_strict_read_gives_read_to_who_may_read(operation: str, permission: str) -> None:
    """A DENY, too: beside an ALLOW for all, its principal may not read at the source."""
    binding = replace(ALICE, operation=operation, permission=permission)
    wanted = replace(ALICE, resource_name=REMOTE, permission=permission)
    assert one(binding, "strict-read") == wanted


@pytest.mark.parametrize(
    "change", [{"operation": "DESCRIBE"}, {"operation": "WRITE"}, {"operation": "WRITE", "permission": "DENY"}]
)
def test_strict_read_gives_nothing_else(change: dict[str, str]) -> None:
    assert one(replace(ALICE, **change), "strict-read") is None


@pytest.mark.parametrize("permission", ["ALLOW", "DENY"])
def test_dr_full_gives_a_binding_of_all_topics_for_each_remote_topic(permission: str) -> None:
    every = replace(ALICE, resource_name="*", operation="ALL", permission=permission)
    remote = {"orders": [REMOTE], "t": ["a.t"]}
    wanted = {replace(every, resource_name=one) for one in (REMOTE, "a.t")}
    assert mirrored([every], "dr-full", remote) == wanted
    assert mirrored([every], "mirror", remote) == mirrored([every], "off", remote) == frozenset()
    groups = replace(every, resource_type="GROUP")
    assert mirrored([groups], "dr-full", remote) == {groups}


@pytest.mark.parametrize(("name", "pattern"), [("*", "LITERAL"), ("ord", "PREFIXED"), ("orders", "PREFIXED")])
@pytest.mark.parametrize("operation", ["READ", "ALL"])
def test_strict_read_denies_who_is_denied_a_prefix_or_all_topics(name: str, pattern: str, operation: str) -> None:
    """Kafka reads a DENY of any pattern first: beside an ALLOW of the topic, its principal may not read there."""
    denied = replace(ALICE, resource_name=name, pattern_type=pattern, operation=operation, permission="DENY")
    remote = {"orders": [REMOTE], "t": ["a.t"]}
    wanted = {replace(ALICE, resource_name=REMOTE, permission="DENY")}
    if name == "*":
        wanted |= {replace(one, resource_name="a.t") for one in wanted}
    assert mirrored([denied], "strict-read", remote) == wanted
    assert mirrored([replace(denied, permission="ALLOW")], "strict-read", remote) == frozenset()
    assert mirrored([replace(denied, operation="WRITE")], "strict-read", remote) == frozenset()
    assert mirrored([denied], "mirror", remote) == frozenset(), "as MirrorMaker 2"


def test_dr_full_keeps_what_a_region_needs_that_takes_over() -> None:
    write = replace(ALICE, operation="WRITE")
    prefixed = replace(ALICE, resource_name="ord", pattern_type="PREFIXED")
    group = replace(ALICE, resource_type="GROUP", resource_name="readers")
    assert mirrored([write, prefixed, group], "dr-full", ONLY_ORDERS) == {
        replace(write, resource_name=REMOTE),
        prefixed,
        group,
    }


@pytest.mark.parametrize("remote", [REMOTE, "orders"])
def test_dr_full_denies_who_is_denied_a_prefix_whatever_the_remote_topic_is_called(remote: str) -> None:
    """`a.orders` does not begin with `ord`: an ALLOW of all topics would be all that its principal has there."""
    allowed = replace(ALICE, resource_name="*")
    denied = replace(ALICE, resource_name="ord", pattern_type="PREFIXED", permission="DENY")
    found = mirrored([allowed, denied], "dr-full", {"orders": [remote], "t": ["a.t"]})
    by_name = {replace(denied, resource_name=REMOTE, pattern_type="LITERAL")} if remote == REMOTE else set()
    assert found == {
        denied,
        *by_name,
        replace(ALICE, resource_name=remote),
        replace(ALICE, resource_name="a.t"),
    }


def test_off_mirrors_nothing() -> None:
    assert mirrored([ALICE], "off", ONLY_ORDERS) == frozenset()


class TestProtection:
    WRITER = replace(ALICE, resource_name=REMOTE, operation="WRITE", principal="User:bob")

    def test_every_named_writer_is_denied(self) -> None:
        prefixed = replace(self.WRITER, resource_name="a.", pattern_type="PREFIXED", principal="User:carol")
        wildcard = replace(self.WRITER, resource_name="*", operation="ALL", principal="User:dave")
        denied, left = protecting(REMOTE, WriteGrants.among([self.WRITER, prefixed, wildcard]), ["User:replicator"])
        assert {(one.principal, one.operation, one.permission, one.resource_name) for one in denied} == {
            (f"User:{name}", "WRITE", "DENY", REMOTE) for name in ("bob", "carol", "dave")
        }
        assert left == frozenset()

    def test_everybody_and_ourselves_are_never_denied(self) -> None:
        everybody = replace(self.WRITER, principal="User:*")
        ours = replace(self.WRITER, principal="User:replicator")
        assert protecting(REMOTE, WriteGrants.among([everybody, ours]), ["User:replicator"]) == (
            frozenset(),
            frozenset({"User:*"}),
        )

    @pytest.mark.parametrize(
        "change",
        [{"resource_name": "b.orders"}, {"operation": "READ"}, {"permission": "DENY"}, {"resource_type": "GROUP"}],
    )
    def test_who_may_not_write_it_is_not_denied(self, change: dict[str, str]) -> None:
        assert protecting(REMOTE, WriteGrants.among([replace(self.WRITER, **change)]), []) == (frozenset(), frozenset())

    @given(
        names=st.lists(st.tuples(st.text("ab.*", min_size=1, max_size=4), st.sampled_from(["LITERAL", "PREFIXED"]))),
        topic=st.text("ab.", min_size=1, max_size=5),
    )
    def test_grants_are_those_whose_pattern_fits(self, names: list[tuple[str, str]], topic: str) -> None:
        bindings = [replace(self.WRITER, resource_name=name, pattern_type=pattern) for name, pattern in names]
        fitting = [
            one
            for one in bindings
            if (
                topic.startswith(one.resource_name)
                if one.pattern_type == "PREFIXED"
                else one.resource_name in (topic, "*")
            )
        ]
        assert sorted(WriteGrants.among(bindings).of(topic)) == sorted(fitting)
