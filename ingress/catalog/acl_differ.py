"""Desired minus actual for ACLs: which are created, and which of ours are deleted. Pure.

    desired, absent                 create
    ours, no longer desired         delete: a revocation at the source follows
    somebody else's, not desired    kept
    desired, and there already      kept, and not ours: its creator may rely on it

Nothing is deleted while the source's ACLs are not known: an error is no revocation.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from formats.policies.acls import AclBinding, WriteGrants, protecting


@dataclass(frozen=True, slots=True)
class AclPlan:
    create: frozenset[AclBinding] = frozenset()
    delete: frozenset[AclBinding] = frozenset()
    # who may write to destinations in spite of `protect`, and which ACLs of the source are not created
    unprotected: tuple[str, ...] = ()

    @property
    def texts(self) -> Sequence[str]:
        """Every change, in plain words."""
        return [
            *(f"create the ACL {binding}" for binding in sorted(self.create)),
            *(f"delete the ACL {binding}" for binding in sorted(self.delete)),
        ]


def plan_acls(
    desired: Collection[AclBinding],
    actual: Collection[AclBinding],
    owned: Collection[AclBinding],
    *,
    protected: Iterable[str],
    own_principals: Collection[str],
    are_all_known: bool,
) -> AclPlan:
    """`owned`: those that the ledger has. `protected`: destinations to which only ingress may write. `are_all_known`:
    whether the ACLs of every source region are."""
    wanted, left = set(desired), []
    foreign = WriteGrants.among((set(actual) - set(owned)) | set(desired))
    for topic in protected:
        deny, others = protecting(topic, foreign, own_principals)
        wanted |= deny
        left += [f"{principal} may write to {topic}" for principal in sorted(others)]
    delete = (set(owned) & set(actual)) - wanted if are_all_known else set()
    return AclPlan(frozenset(wanted - set(actual)), frozenset(delete), tuple(left))
