"""Which ACLs are created and deleted: only ours, and nothing on the word of an error."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from formats.policies.acls import AclBinding
from ingress.catalog.acl_differ import AclPlan, plan_acls
from tests.examples import property_examples


def acl(
    principal: str = "User:alice", operation: str = "READ", name: str = "copy", pattern: str = "LITERAL"
) -> AclBinding:
    return AclBinding(
        resource_type="TOPIC",
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host="*",
        operation=operation,
        permission="ALLOW",
    )


some = st.frozensets(st.builds(acl, st.sampled_from(["User:a", "User:b"]), st.sampled_from(["READ", "DESCRIBE"])))


@property_examples()
@given(some, some, some)
def test_applied_once_nothing_is_left_and_only_what_is_ours_is_deleted(
    desired: frozenset[AclBinding], actual: frozenset[AclBinding], owned: frozenset[AclBinding]
) -> None:
    def plan(here: frozenset[AclBinding], ours: frozenset[AclBinding]) -> AclPlan:
        return plan_acls(desired, here, ours, protected=[], own_principals=[], are_all_known=True)

    found = plan(actual, owned)
    assert found.delete <= owned & actual
    after = (actual | found.create) - found.delete
    assert desired <= after
    assert after - desired == actual - desired - owned
    assert plan(after, owned | found.create) == AclPlan()


def test_a_revocation_follows() -> None:
    plan = plan_acls([], [acl()], [acl()], protected=[], own_principals=[], are_all_known=True)
    assert plan == AclPlan(delete=frozenset({acl()}))


def test_what_is_not_known_revokes_nothing() -> None:
    assert plan_acls([], [acl()], [acl()], protected=[], own_principals=[], are_all_known=False) == AclPlan()


def test_protected_topics_deny_writing_to_those_who_may() -> None:
    actual = [
        acl("User:w", "WRITE"),
        acl("User:p", "ALL", "co", "PREFIXED"),
        acl("User:*", "WRITE"),
        acl("User:us", "WRITE"),
    ]
    plan = plan_acls([], actual, [], protected=["copy"], own_principals=["User:us"], are_all_known=True)
    assert {(one.principal, one.operation, one.permission, one.resource_name) for one in plan.create} == {
        ("User:w", "WRITE", "DENY", "copy"),
        ("User:p", "WRITE", "DENY", "copy"),
    }
    assert plan.unprotected == ("User:* may write to copy",)
    again = plan_acls(
        [], [*actual, *plan.create], plan.create, protected=["copy"], own_principals=["User:us"], are_all_known=True
    )
    assert (again.create, again.delete) == (frozenset(), frozenset())


def test_a_denial_ends_with_the_permission() -> None:
    allowed = acl("User:w", "WRITE")
    first = plan_acls([], [allowed], [], protected=["copy"], own_principals=["User:us"], are_all_known=True)
    then = plan_acls([], first.create, first.create, protected=["copy"], own_principals=["User:us"], are_all_known=True)
    assert then.delete == first.create
