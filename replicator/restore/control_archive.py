"""What destinations can be created after: the catalogues of the source, and the rules by which they cross."""

from __future__ import annotations

from datetime import datetime

from infra.archive.control import ControlStore
from infra.archive.generation_history import catalog_history
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from ingress.catalog.settings import CatalogSettings
from replicator.config import Config
from replicator.restore.acl_restore import AclRestore
from replicator.restore.destination import ControlArchive
from replicator.restore.source_catalog import SourceCatalog, moment_of
from replicator.restore.target_options import TargetOptions
from replicator.selection import Selection
from replicator.services.catalog import own_principals


def control_archive(
    config: Config,
    selection: Selection,
    options: TargetOptions,
    control: ControlStore,
    acls: AclRestore,
    *,
    moment: datetime | None = None,
) -> ControlArchive | None:
    """`moment`: when a cut says it; else the end of the selected timestamps. None when `options` ask for nothing of it.
    Configs are filtered as ingress filters them, if the file says how."""
    if not options.needs_catalog:
        return None
    history = catalog_history(control.objects, control.prefix, selection.region)
    return ControlArchive(
        catalog=SourceCatalog(history, selection.region, moment or moment_of(selection)),
        acls=acls,
        config_filter=_settings(config).config_filter,
    )


def acl_restore(config: Config, admin: KafkaAdmin) -> AclRestore:
    return AclRestore(lambda: KafkaCatalogAdmin(admin.connection), own_principals(config, _settings(config)))


def _settings(config: Config) -> CatalogSettings:
    return config.ingress or CatalogSettings()
