"""Builds what brings the consumer groups of the sources to this cluster."""

from __future__ import annotations

from functools import partial

from formats.policies.mirror_topics import MIRROR_CONFIGS, why_not_mirrored
from infra.archive.control import ControlStore
from infra.archive.group_reports import GroupReports
from infra.archive.offset_maps import OffsetMapCopier, OffsetMapCopies
from infra.contracts.internal_topics import Ledger
from infra.contracts.storage import ObjectStore
from infra.kafka.client.properties import for_bounded_reads
from infra.kafka.cluster.admin import KafkaAdmin
from infra.kafka.cluster.catalog_admin import KafkaCatalogAdmin
from infra.kafka.cluster.group_commits import KafkaGroupCommits
from infra.kafka.cluster.groups import KafkaGroups
from infra.kafka.cluster.log_ends import KafkaLogEnds
from infra.kafka.internal_topics.mirror_records import KafkaMirrorRecordLog
from infra.kafka.internal_topics.offset_map_editor import KafkaOffsetMapEditor
from infra.kafka.internal_topics.offset_map_log import KafkaOffsetMapLog
from infra.settings.current import InForce
from ingress.catalog.creator import TopicCreator
from ingress.catalog.mirror_topics import MirrorTopics
from ingress.groups.groups import Groups
from ingress.groups.lookup import MapReader
from ingress.groups.map_retention import MapRetention
from ingress.groups.map_trimmer import OffsetMapTrimmer
from ingress.groups.round import GroupRound
from ingress.groups.target_groups import TargetGroups
from ingress.groups.topic_ids import ClaimedTopicIds
from ingress.settings import IngressSettings
from replicator.config import Config
from replicator.services.wiring import ServiceContext

CLIENTS = 16  # groups described and committed at a time, each with a client of its own, which mostly waits


def groups_of(
    config: Config,
    current: InForce[IngressSettings],
    around: ServiceContext,
    *,
    admin: KafkaAdmin,
    ledger: Ledger,
    objects: ObjectStore,
) -> Groups:
    settings, kafka = config.groups, config.cluster
    groups_round = None
    if settings.emit_checkpoints:
        offset_map = KafkaOffsetMapLog(kafka.properties("consumer"), current.value.offset_map_topic)
        around.resources.callback(offset_map.close)
        records = KafkaMirrorRecordLog(for_bounded_reads(kafka.properties("consumer")), kafka.properties("producer"))
        around.resources.callback(records.close)
        factor = current.value.internal_replication_factor
        maps = MapReader(offset_map=offset_map, ends=KafkaLogEnds(admin.connection), admin=admin)
        copies = OffsetMapCopies(objects, config.s3.prefix, config.region)
        editor = KafkaOffsetMapEditor(kafka.properties("producer"), current.value.offset_map_topic)
        around.resources.callback(editor.close)
        groups_round = GroupRound(
            reports=GroupReports(objects, config.s3.prefix),
            maps=maps,
            topic_ids=ClaimedTopicIds(ControlStore(objects, config.s3.prefix)),
            topics=MirrorTopics(
                admin=admin,
                catalog_admin=KafkaCatalogAdmin(admin.connection),
                ledger=ledger,
                creator=TopicCreator(admin, ledger, around.clock, factor, "ingress.internal_replication_factor"),
                settings=current,
                clock=around.clock,
                configs=MIRROR_CONFIGS,
                why_not=partial(why_not_mirrored, adopt=settings.adopt),
            ),
            records=records,
            target=TargetGroups(
                groups=KafkaGroups(kafka.properties("admin"), kafka.properties("consumer")),
                writer=KafkaGroupCommits(kafka.properties("consumer")),
                ledger=ledger,
                pool=around.pool(CLIENTS, "groups"),
                allow_rewind=settings.allow_rewind,
            )
            if settings.sync
            else None,
            now=around.clock.now,
            retention=MapRetention(
                maps=maps,
                admin=admin,
                trimmer=OffsetMapTrimmer(offset_map, editor, copies),
                copier=OffsetMapCopier(copies),
            ),
        )
    return Groups(
        settings=current,
        groups=settings,
        round=groups_round,
        pool=around.pool(1, "groups-round"),
        metrics=around.metrics,
        health=around.health,
    )
