"""The stacks of two regions, deployed into moto: that of the source, that of the target, and the one of compaction."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.infra.deploy.on_moto import deploy
from tests.infra.deploy.template import Template
from tests.infra.enforced_aws import ACCOUNT, EnforcedAws, enforced_aws

REGION, OTHER = "us-east-1", "eu-west-1"
TRUST = {"TrustedServices": "", "TrustedPrincipals": f"arn:aws:iam::{ACCOUNT}:user/base", "ExternalId": "kept-secret"}
TARGET = Template(
    "target-region",
    {"BucketName": "theirs", "ArchiveRegion": OTHER, "SourceRegion": REGION, **TRUST},
    region=OTHER,
    stack="target",
)
SOURCE = Template(
    "source-region",
    {
        "BucketName": "ours",
        "ArchiveRegion": REGION,
        "ReplicaBucketName": "theirs",
        **TRUST,
        "LargeObjectClass": "STANDARD_IA",
        "AlarmTopicArn": f"arn:aws:sns:{REGION}:{ACCOUNT}:alarms",
    },
    stack="source",
)
COMPACTION = Template("compaction", {"BucketName": "ours", "ArchiveRegion": REGION, **TRUST}, stack="compaction")


@contextmanager
def deployed(folder: Path) -> Iterator[EnforcedAws]:
    """`folder`: for the files of moto."""
    with enforced_aws(folder) as running:
        for template in (TARGET, SOURCE, COMPACTION):
            deploy(running, template)
        yield running
