"""The table's IAM rights as policy statements of one bucket and one queue. Pure.

A resource of IAM has `*` and no "but not": what is allowed on the segments of a region is allowed on its control
objects, too. What is allowed on control objects alone can be written exactly.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from formats.codec import VERSION
from formats.incarnation import CONTROL
from formats.segment import region_prefix
from replicator.rights.table import AS_STORED, GET, IAM, PUT, RETENTION, IamRight, In, Of

ANY = "*"
ALIASES = "kms:ResourceAliases"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveAccess:
    """A bucket, and whose archives in it a role works with. ARNs may be CloudFormation's, such as `${Bucket.Arn}`."""

    bucket_arn: str
    prefix: str
    region: str  # that of the configuration
    archives: Collection[str] = ()  # whose archives a command works on; default: this region's
    sources: Collection[str] = ()
    queue_arn: str = ""
    other_queue_arns: Collection[str] = ()  # those of `sync`
    dead_letter_arns: Collection[str] = ()
    kms_key_arn: str = ""
    kms_alias: str = ""  # a condition on kms_key_arn; empty: there is none
    locks: bool = False  # new objects, by object_lock_mode

    def regions(self, of: Of) -> Sequence[str]:
        match of:
            case Of.SOURCES:
                return sorted(self.sources)
            case Of.EVERY:
                return [ANY]
            case Of.ONE:
                return sorted(self.archives) or [self.region]
            case Of.HERE:
                return [self.region]

    def resources(self, right: IamRight) -> Sequence[str]:
        match right.on:
            case In.BUCKET:
                return [self.bucket_arn]
            case In.QUEUE:
                return [*([self.queue_arn] if self.queue_arn else []), *self.other_queue_arns]
            case In.DEAD_LETTERS:
                return sorted(self.dead_letter_arns)
            case In.SEGMENTS | In.CONTROL:
                within = [f"{self.bucket_arn}/{region_prefix(self.prefix, one)}" for one in self.regions(right.of)]
                if right.on is In.SEGMENTS:
                    return [f"{one}*" for one in within]
                folder = f"{CONTROL}/v{VERSION}/"
                return [f"{one}{folder}{name}" for one in within for name in right.only] or [
                    f"{one}{CONTROL}/*" for one in within
                ]


def statements(who: Collection[str], archive: ArchiveAccess) -> Sequence[Mapping[str, Any]]:
    """One for each set of actions, with all of its resources; no action that another statement allows already on the
    same or more."""
    by_resource: dict[str, set[str]] = {}
    for right in IAM:
        if right.who in who:
            for resource in archive.resources(right):
                by_resource.setdefault(resource, set()).update(right.actions)
                if archive.locks and PUT in right.actions and not right.only:  # what `only` names is not locked
                    by_resource[resource].add(RETENTION)
    merged: dict[tuple[str, ...], list[str]] = {}
    for resource, actions in by_resource.items():
        wider = [other for other in by_resource if other != resource and _covers(other, resource)]
        left = actions - {action for other in wider for action in by_resource[other]}
        if left:
            merged.setdefault(tuple(sorted(left)), []).append(resource)
    found = [_allow(actions, resources) for actions, resources in merged.items()]
    return [*found, *_of_key(by_resource, archive)]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyAccess:
    """KMS keys of [encryption], by their ARNs."""

    creates: str = ""  # for new objects
    reads: Sequence[str] = ()  # further ones


def key_statements(who: Collection[str], keys: KeyAccess) -> Sequence[Mapping[str, Any]]:
    """What the credentials of [encryption] need for what `who` reads and puts."""
    actions = uses_of_keys(who)
    found = []
    if keys.creates and actions:
        found.append(_allow(["kms:Decrypt", *(["kms:GenerateDataKey"] if PUT in actions else [])], [keys.creates]))
    if keys.reads and GET in actions:
        found.append(_allow(["kms:Decrypt"], keys.reads))
    return found


def uses_of_keys(who: Collection[str]) -> Collection[str]:
    """What `who` does with the content of objects: GET, PUT, or neither."""
    content = {In.SEGMENTS, In.CONTROL}
    rights = [one for one in IAM if one.who in who and one.who not in AS_STORED and one.on in content]
    return {GET, PUT} & {action for one in rights for action in one.actions}


def _covers(wide: str, narrow: str) -> bool:
    """Whether every object of `narrow` is one of `wide`."""
    return wide.endswith("/*") and narrow.startswith(wide[:-1])


def _of_key(by_resource: Mapping[str, Collection[str]], archive: ArchiveAccess) -> Iterator[Mapping[str, Any]]:
    """Where the bucket is encrypted with a key of the account."""
    if archive.kms_key_arn:
        writes = any(PUT in actions for actions in by_resource.values())
        found = _allow(["kms:Decrypt", *(["kms:GenerateDataKey"] if writes else [])], [archive.kms_key_arn])
        condition = {"ForAnyValue:StringEquals": {ALIASES: archive.kms_alias}}
        yield {**found, "Condition": condition} if archive.kms_alias else found


def _allow(actions: Collection[str], resources: Sequence[str]) -> Mapping[str, Any]:
    return {"Effect": "Allow", "Action": sorted(actions), "Resource": sorted(resources)}


def policy(parts: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A policy document, as `aws iam put-role-policy` takes it."""
    return {"Version": "2012-10-17", "Statement": list(parts)}
