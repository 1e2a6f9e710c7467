"""ARNs of what a configuration names: a bucket, a queue, a KMS key. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from infra.settings.storage import S3Settings, SqsSettings

ANY = "*"
_HOST = re.compile(r"(sqs\.)?(?P<region>[a-z]{2}(-[a-z]+)+-\d)(\.queue)?\.amazonaws\.com(\.cn)?")
_PARTITIONS = {
    "cn-": "aws-cn",
    "us-gov-": "aws-us-gov",
    "eusc-": "aws-eusc",
    "us-iso-": "aws-iso",
    "us-isob-": "aws-iso-b",
    "us-isof-": "aws-iso-f",
    "eu-isoe-": "aws-iso-e",
}


@dataclass(frozen=True, slots=True)
class KeyResource:
    """A KMS key in a policy. IAM compares the ARNs of keys, never those of aliases: `alias` is a condition on any key
    of the resource; empty: there is none."""

    arn: str
    alias: str = ""


def partition_of(region: str) -> str:
    """Of an AWS region; `aws` for any other name."""
    return next((found for head, found in _PARTITIONS.items() if region.startswith(head)), "aws")


def bucket_arn(settings: S3Settings, region: str) -> str:
    """`region`: that of the file, where the section names none."""
    return f"arn:{_partition(settings, region)}:s3:::{settings.bucket}"


def key_of(settings: S3Settings, region: str, account: str) -> KeyResource | None:
    """The key of `kms_key_id`: an ARN, the id of a key, or an alias. None: the section names no key."""
    given = settings.kms_key_id
    if given is None:
        return None
    if given.startswith("arn:"):
        head, _, name = given.rpartition(":")
    else:
        head = f"arn:{_partition(settings, region)}:kms:{settings.region_name or ANY}:{account or ANY}"
        name = given if given.startswith("alias/") else f"key/{given}"
    if name.startswith("alias/"):
        return KeyResource(f"{head}:key/{ANY}", alias=name)
    return KeyResource(f"{head}:{name}")


def queue_arn(settings: SqsSettings, account: str, region: str = "", *, name: str = "") -> str:
    """What the settings do not say is `*`. `region`: that of the file. `name`: of another queue beside it."""
    url = urlsplit(settings.queue)
    found = settings.region_name
    if url.scheme:
        host = _HOST.fullmatch(url.hostname or "")
        found = host["region"] if host else found
        account, _, own = url.path.strip("/").rpartition("/")
    else:
        own = settings.queue
    return f"arn:{partition_of(found or region)}:sqs:{found or ANY}:{account or ANY}:{name or own}"


def _partition(settings: S3Settings, region: str) -> str:
    """That of an ARN of the section, else of its region."""
    for arn in (settings.kms_key_id or "", settings.role_arn or ""):
        if arn.startswith("arn:"):
            return arn.split(":")[1]
    return partition_of(settings.region_name or region)
