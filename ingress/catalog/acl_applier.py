"""Makes the ACLs of the destinations of this process like those of their sources."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from formats.control.catalog import Catalog
from formats.errors import TargetError
from formats.policies.acls import LITERAL, TOPIC, AclBinding, WriteGrants, protecting, without_hindrances
from infra.contracts.catalog import CatalogAdmin, NoAuthorizer, OtherAccessControl
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from infra.runtime.lifecycle import Clock
from infra.settings.current import InForce
from ingress.catalog.acl_differ import AclPlan, plan_acls
from ingress.catalog.desired import SourceTopic, desired_acls
from ingress.catalog.ownership import LedgerView
from ingress.catalog.settings import CatalogSettings

log = logging.getLogger(__name__)

NOT_PROTECTED = (
    "no principal is denied to write to destinations, since the replicator's own is not known: its clients have no "
    "sasl.username. Set ingress.own_principals, or protect = false"
)
HINDERING = "an ACL of the source that is not created here, since ingress could not write its destinations any more"
NONE_LISTED = (
    "the cluster lists no ACL, although ingress created some: allow DESCRIBE on the cluster, or set acls = 'off'; if "
    "all were deleted on purpose, any ACL that is created by hand ends this"
)


@dataclass(slots=True, kw_only=True)
class AclApplier:
    """Use from one thread at a time. Raises BrokerUnavailable, and TargetError when ACLs may not be read or changed."""

    admin: CatalogAdmin
    ledger: LedgerView
    settings: InForce[CatalogSettings]
    clock: Clock
    here: str = ""  # this region: heartbeats and rehearsals of its own are of no source
    own_principals: Collection[str] = ()  # empty: not known, and no DENY is created

    def plan(
        self,
        destinations: Mapping[str, Sequence[SourceTopic]],
        catalogs: Mapping[str, Catalog],
        owned: Collection[str],
        regions: Collection[str],
    ) -> AclPlan:
        """`owned`: those of the destinations that we created. `regions`: all that are configured. A cluster without an
        authorizer has nothing to change."""
        settings = self.settings.value
        if settings.acls == "off" or not catalogs or not destinations:
            return AclPlan()
        table = self.ledger.table
        catalogs = {name: one for name, one in catalogs.items() if not table.why_held(name)}
        mirrored = {one for one in desired_acls(destinations, catalogs, settings) if _is_kept(one, destinations)}
        desired, hindering = without_hindrances(mirrored, self.own_principals)
        ours = {one for one in table.acls if _is_kept(one, destinations)}
        # bindings of groups and prefixes are of any region that topics here are from: the ledger does not say of which
        named = (one.source.partition("/") for one in table.topics.values())
        origins = {*regions, *(region for region, separator, _ in named if separator and region != self.here)}
        if not all(region in regions and _has_acls(catalogs, region) for region in origins):
            ours = {one for one in ours if _is_of_one_topic(one)}  # one that is not asked revokes nothing
        protected = [name for name in owned if self._is_protected(name, destinations[name])]
        if not (mirrored or ours or protected):
            return AclPlan()
        try:
            actual = self.admin.acls()
        except OtherAccessControl as error:
            return AclPlan(unprotected=(f"no ACL is created, and no destination protected: {error}",))
        except NoAuthorizer:
            return AclPlan()
        except TargetError as error:
            if desired or ours:
                raise
            return AclPlan(unprotected=(f"who may write to destinations is not known: {error}",))
        if ours and not actual:
            # the client lists none to a principal that may not list them. They stay ours: what the source revokes
            # meanwhile is revoked as soon as they are listed again
            raise TargetError(NONE_LISTED)
        sources = {source.region for some in destinations.values() for source in some}
        plan = plan_acls(
            desired,
            actual,
            ours,
            protected=protected if self.own_principals else (),
            own_principals=self.own_principals,
            are_all_known=all(_has_acls(catalogs, region) for region in sources),
        )
        plan = replace(plan, unprotected=(*plan.unprotected, *(f"{one}: {HINDERING}" for one in hindering)))
        if self.own_principals or not protected:
            return plan
        grants = WriteGrants.among(actual)
        if any(any(protecting(name, grants, ())) for name in protected):
            return replace(plan, unprotected=(*plan.unprotected, NOT_PROTECTED))
        return plan

    def apply(self, plan: AclPlan) -> str:
        """The cluster's reason for what it refuses; empty when nothing is."""
        refused: Mapping[AclBinding, str] = {}
        if plan.create:
            # written down first: an ACL of ours that the ledger does not have could never be revoked
            self.ledger.own(plan.create - self.ledger.table.acls, self.clock.now())
            with durable(Step.CREATE_ACLS):
                refused = self.admin.create_acls(sorted(plan.create))
            self.ledger.disown(refused.keys())  # a later creation of the same ACL is not ours
        if plan.delete:
            with durable(Step.DELETE_ACLS):
                self.admin.delete_acls(sorted(plan.delete))
            self.ledger.disown(plan.delete)
        for text in AclPlan(plan.create - refused.keys(), plan.delete).texts:
            log.info("acls_changed", extra={log_fields.REASON: text})
        return "; ".join(sorted(set(refused.values())))

    def forget(self, topic: str) -> None:
        """Delete those of ours that are of this topic alone, which is about to be deleted."""
        ours = {one for one in self.ledger.table.acls if _is_of_one_topic(one) and one.resource_name == topic}
        if ours:
            with durable(Step.DELETE_ACLS):
                self.admin.delete_acls(sorted(ours))
            self.ledger.disown(ours)

    def _is_protected(self, name: str, sources: Sequence[SourceTopic]) -> bool:
        if (protect := self.settings.value.protect) is not None:
            return protect
        return all(name != source.name for source in sources)


def principals_of(clients: Iterable[Mapping[str, str]], configured: Collection[str]) -> Collection[str]:
    """Principals of this process, by the Kafka properties of its clients; empty when those of one of them do not say: a
    certificate, a ticket or a token has it, or a rule of the broker."""
    if configured:
        return frozenset(configured)
    found = [_principal_of(properties) for properties in clients]
    return frozenset(found) if all(found) else frozenset()


def _principal_of(properties: Mapping[str, str]) -> str:
    protocol = properties.get("security.protocol", "plaintext").lower()
    if protocol.startswith("sasl") and (name := properties.get("sasl.username")):
        return f"User:{name}"
    return "User:ANONYMOUS" if protocol == "plaintext" else ""


def _is_kept(binding: AclBinding, destinations: Collection[str]) -> bool:
    """ACLs of one topic are kept by the process that keeps it; others, which are the same for all, by every process."""
    return not _is_of_one_topic(binding) or binding.resource_name in destinations


def _is_of_one_topic(binding: AclBinding) -> bool:
    return binding.resource_type == TOPIC and binding.pattern_type == LITERAL


def _has_acls(catalogs: Mapping[str, Catalog], region: str) -> bool:
    return region in catalogs and catalogs[region].acls is not None
