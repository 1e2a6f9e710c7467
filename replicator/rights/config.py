"""The IAM policies of a role, with the buckets and queues of a configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

from infra.settings.encryption import EncryptionSettings
from infra.settings.storage import S3Settings, SqsSettings
from replicator.config import Config
from replicator.rights.iam import ArchiveAccess, KeyAccess, key_statements, policy, statements
from replicator.rights.table import CommandRole

HERE, THERE, KEYS = "s3", "sync.destination", "encryption"  # sections whose credentials need the policy
_ARN = "arn:aws:"
_HOST = re.compile(r"(sqs\.)?(?P<region>[a-z]{2}(-[a-z]+)+-\d)(\.queue)?\.amazonaws\.com(\.cn)?")


def policies_of(role: CommandRole, config: Config, account: str = "*") -> Mapping[str, Mapping[str, Any]]:
    """By section of the configuration; empty for a section that is not there, and for a role without rights there."""
    sources = config.ingress.regions if config.ingress is not None else ()
    queue = config.sync.queue if role.name == "sync" and config.sync is not None else config.sqs
    here = _archive(
        config.s3, config.region, _archives(role, config), sources, queue_arn(queue, account) if queue else ""
    )
    if role.name == "doctor" and config.sync is not None and config.sync.queue is not None:
        here = replace(here, other_queue_arns=[queue_arn(config.sync.queue, account)])
    found = {HERE: statements(role.iam, here)}
    if config.sync is not None:
        found[THERE] = statements(role.there, _archive(config.sync.destination, here.region, here.archives))
    if (keys := config.encryption) is not None:
        access = KeyAccess(creates=keys.kms_key_id or "" if keys.key == "kms" else "", reads=_read_keys(keys))
        found[KEYS] = key_statements(role.iam, access)
    return {section: policy(parts) for section, parts in found.items() if parts}


def _read_keys(settings: EncryptionSettings) -> Sequence[str]:
    earlier = [settings.kms_key_id] if settings.kms_key_id and settings.key != "kms" else []
    return [*earlier, *settings.kms_read_key_ids]


def _archives(role: CommandRole, config: Config) -> frozenset[str]:
    """Whose archives are compacted or thinned: they may be other regions'."""
    if role.name == "compact" and config.compaction is not None:
        return frozenset(job.region or config.region for job in config.compaction.jobs)
    if role.name == "gc" and config.retention is not None:
        return frozenset({config.retention.region or config.region})
    return frozenset()


def _archive(
    settings: S3Settings, region: str, archives: Collection[str], sources: Collection[str] = (), queue: str = ""
) -> ArchiveAccess:
    key = settings.kms_key_id or ""
    return ArchiveAccess(
        bucket_arn=f"{_ARN}s3:::{settings.bucket}",
        prefix=settings.prefix,
        region=region,
        archives=archives,
        sources=sources,
        queue_arn=queue,
        kms_key_arn=key if key.startswith("arn:") else "",
        locks=settings.object_lock_mode is not None,
    )


def queue_arn(settings: SqsSettings, account: str) -> str:
    """What the settings do not say is `*`."""
    url = urlsplit(settings.queue)
    region = settings.region_name
    if url.scheme:
        host = _HOST.fullmatch(url.hostname or "")
        region = host["region"] if host else region
        account, _, name = url.path.strip("/").rpartition("/")
    else:
        name = settings.queue
    return f"{_ARN}sqs:{region or '*'}:{account or '*'}:{name}"
