"""The IAM policies of a role, with the buckets and queues of a configuration. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any
from urllib.parse import urlsplit

from infra.settings.storage import S3Settings, SqsSettings
from replicator.config import Config
from replicator.rights.iam import ArchiveAccess, policy, statements
from replicator.rights.table import CommandRole

HERE, THERE = "s3", "sync.destination"  # sections whose credentials need the policy
_ARN = "arn:aws:"
_HOST = re.compile(r"(sqs\.)?(?P<region>[a-z]{2}(-[a-z]+)+-\d)(\.queue)?\.amazonaws\.com(\.cn)?")


def policies_of(role: CommandRole, config: Config, account: str = "*") -> Mapping[str, Mapping[str, Any]]:
    """By section of the configuration; empty for a section that is not there, and for a role without rights there."""
    sources = {source.region for source in config.ingress.sources} if config.ingress is not None else ()
    queue = config.sync.queue if role.name == "sync" and config.sync is not None else config.sqs
    here = _archive(
        config.s3, config.region, _archives(role, config), sources, queue_arn(queue, account) if queue else ""
    )
    found = {HERE: statements(role.iam, here)}
    if config.sync is not None:
        found[THERE] = statements(role.there, _archive(config.sync.destination, here.region, here.archives))
    return {section: policy(parts) for section, parts in found.items() if parts}


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
