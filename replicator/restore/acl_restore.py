"""The ACLs of a destination, as those of its source's topic cross to it (`formats.policies.acls`, mode mirror).

Bindings that exist are left, and none is removed. A DENY that would keep this restore from writing is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from formats.errors import TargetError
from formats.policies.acls import AclBinding, hinders, mirrored
from infra.contracts.catalog import CatalogAdmin, NoAuthorizer, OtherAccessControl
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredAcls:
    create: tuple[AclBinding, ...] = ()
    existing: tuple[AclBinding, ...] = ()
    left_out: tuple[AclBinding, ...] = ()  # they deny this restore its destination
    why: str = ""  # none is restored


@dataclass(slots=True)
class AclRestore:
    """Use from one thread at a time. Raises BrokerUnavailable; TargetError when ACLs may not be read or created."""

    admin: Callable[[], CatalogAdmin]  # for restores that restore ACLs
    own_principals: Collection[str]  # empty: not known
    _existing: frozenset[AclBinding] | None = field(default=None, init=False)

    def plan(self, topic: str, destination: str, bindings: Collection[AclBinding]) -> RestoredAcls:
        """`bindings`: of the source's cluster. They are compared with those that the target has at the first call."""
        wanted = mirrored(bindings, "mirror", {topic: [destination]})
        try:
            if self._existing is None:
                self._existing = self.admin().acls()
        except OtherAccessControl as error:
            return RestoredAcls(why=str(error))
        except NoAuthorizer:
            return RestoredAcls(why="this cluster has no authorizer, and so no ACLs")
        new = sorted(wanted - self._existing)
        denying = [binding for binding in new if hinders(binding, self.own_principals)]
        return RestoredAcls(
            create=tuple(binding for binding in new if binding not in denying),
            existing=tuple(sorted(wanted & self._existing)),
            left_out=tuple(denying),
        )

    def create(self, acls: RestoredAcls) -> None:
        """No error for those that exist by now, nor without an authorizer, which some clients find out here only: that
        is logged."""
        if not acls.create:
            return
        try:
            with durable(Step.CREATE_ACLS):
                refused = self.admin().create_acls(acls.create)
        except NoAuthorizer as error:
            log.warning("acls_not_created", extra={log_fields.COUNT: len(acls.create), log_fields.ERROR: str(error)})
            return
        if refused:
            reasons = "; ".join(sorted(set(refused.values())))
            raise TargetError(f"{len(refused)} ACLs were refused: {reasons}. Or restore without them: --acls none")
