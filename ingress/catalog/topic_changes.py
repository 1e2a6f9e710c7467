"""Makes one change of a plan in this cluster, and writes down before it what has to be known after a crash.

Kafka changes topics by name, and a plan of thousands takes minutes: the id is compared as late as possible, since a
topic that somebody created again meanwhile is not ours. The next plan compares it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass

from formats.errors import TargetError
from infra.contracts.catalog import CatalogAdmin
from infra.contracts.cluster import ClusterAdmin
from infra.runtime import log_fields
from infra.runtime.crash_points import Step, durable
from ingress.catalog.acl_applier import AclApplier
from ingress.catalog.differ import Change, ChangeConfigs, DeleteTopic, GrowTopic
from ingress.catalog.ownership import LedgerView, with_configs_set

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TopicChanges:
    """Use from one thread at a time. Raises BrokerUnavailable."""

    admin: ClusterAdmin
    catalog_admin: CatalogAdmin
    ledger: LedgerView
    acls: AclApplier

    def refused(self, change: Change) -> str:
        """Apply it; the cluster's reason if it refuses."""
        refused = ""
        try:
            match change:
                case GrowTopic() | ChangeConfigs() if not self._is_the_same(change):
                    return ""
                case GrowTopic(name, _, partitions, _):
                    with durable(Step.GROW_TOPIC):
                        self.catalog_admin.grow(name, partitions)
                case ChangeConfigs(name, configs, topic_id):
                    self._record(name, topic_id, configs.set.keys())
                    with durable(Step.CHANGE_CONFIGS):
                        left = self.catalog_admin.change_configs(name, configs)
                    refused = "; ".join(f"{key}: {reason}" for key, reason in sorted(left.items()))
                case DeleteTopic():
                    return self._deleted(change)
                case _:
                    return ""
        except TargetError as error:
            return str(error)
        log.info("destination_changed", extra={log_fields.DESTINATION: change.name, log_fields.REASON: str(change)})
        return f"the cluster refuses configs of its source: {refused}" if refused else ""

    def _deleted(self, change: DeleteTopic) -> str:
        """Its ACLs first: those of a topic that is gone are never compared. The ledger keeps its entry, without which
        the intent to create it would count as open again."""
        self.acls.forget(change.name)
        if not self._is_the_same(change):
            return ""
        with durable(Step.DELETE_TOPIC):
            self.catalog_admin.delete_topic(change.name)
        log.warning("destination_deleted", extra={log_fields.DESTINATION: change.name, log_fields.REASON: str(change)})
        return ""

    def _is_the_same(self, change: GrowTopic | ChangeConfigs | DeleteTopic) -> bool:
        here = self.admin.describe([change.name]).get(change.name)
        return here is not None and here.topic_id == change.topic_id

    def _record(self, name: str, topic_id: str, configs: Collection[str]) -> None:
        """Before they are set: one of ours that the ledger does not have would count as an operator's."""
        owned = self.ledger.table.topic(name, topic_id)
        if owned is not None and (changed := with_configs_set(owned, configs)) != owned:
            self.ledger.replaced(changed)
