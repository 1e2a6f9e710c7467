"""The IAM policies of a role, with the buckets and queues of a configuration. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from infra.settings.encryption import EncryptionSettings
from infra.settings.storage import S3Settings
from replicator.config import Config
from replicator.rights.arns import ANY, bucket_arn, key_of, queue_arn
from replicator.rights.iam import ArchiveAccess, KeyAccess, key_statements, policy, statements
from replicator.rights.table import CommandRole

HERE, THERE, KEYS = "s3", "sync.destination", "encryption"  # sections whose credentials need the policy


def policies_of(role: CommandRole, config: Config, account: str = "*") -> Mapping[str, Mapping[str, Any]]:
    """By section of the configuration; empty for a section that is not there, and for a role without rights there."""
    sources = config.ingress.regions if config.ingress is not None else ()
    here = replace(
        _archive(config.s3, config.region, account, archives_of(role, config), sources),
        **_queues(role, config, account),
    )
    found = {HERE: statements(role.iam, here)}
    if config.sync is not None:
        found[THERE] = statements(role.there, _archive(config.sync.destination, here.region, account, here.archives))
    if (keys := config.encryption) is not None:
        access = KeyAccess(creates=keys.kms_key_id or "" if keys.key == "kms" else "", reads=_read_keys(keys))
        found[KEYS] = key_statements(role.iam, access)
    return {section: policy(parts) for section, parts in found.items() if parts}


def _read_keys(settings: EncryptionSettings) -> Sequence[str]:
    earlier = [settings.kms_key_id] if settings.kms_key_id and settings.key != "kms" else []
    return [*earlier, *settings.kms_read_key_ids]


def _queues(role: CommandRole, config: Config, account: str) -> Mapping[str, Any]:
    """Fields of ArchiveAccess. The settings name no dead-letter queue: the doctor finds it in the attributes of the
    queue, so the name is `*`."""
    synced = None if config.sync is None else config.sync.queue
    if role.name == "sync":
        return {"queue_arn": queue_arn(synced, account, config.region) if synced else ""}
    own = queue_arn(config.sqs, account, config.region) if config.sqs else ""
    if role.name != "doctor":
        return {"queue_arn": own}
    queues = [one for one in (config.sqs, synced) if one is not None]
    return {
        "queue_arn": own,
        "other_queue_arns": [queue_arn(synced, account, config.region)] if synced else [],
        "dead_letter_arns": sorted({queue_arn(one, account, config.region, name=ANY) for one in queues}),
    }


def archives_of(role: CommandRole, config: Config) -> frozenset[str]:
    """Whose archives a role works on. Those that are compacted or thinned may be other regions'."""
    if role.name == "compact" and config.compaction is not None and config.compaction.jobs:
        return frozenset(job.region or config.region for job in config.compaction.jobs)
    if role.name == "gc" and config.retention is not None:
        return frozenset({config.retention.region or config.region})
    return frozenset({config.region})


def _archive(
    settings: S3Settings, region: str, account: str, archives: Collection[str], sources: Collection[str] = ()
) -> ArchiveAccess:
    key = key_of(settings, region, account)
    return ArchiveAccess(
        bucket_arn=bucket_arn(settings, region),
        prefix=settings.prefix,
        region=region,
        archives=archives,
        sources=sources,
        kms_key_arn=key.arn if key else "",
        kms_alias=key.alias if key else "",
        locks=settings.object_lock_mode is not None,
    )
