"""The control plane's objects: what the archive says beside segments, below `{prefix}/{region}/_control/v1/`.

    places/{place}                                     which life of a topic a place of the archive belongs to
    begins/{place}/{partition}                         where the archive of a partition begins
    forks/{place}/{partition}/{next_offset:020d}       the source's log was cut below what had been archived of it;
                                                       with -{start:020d}, further than the first time
    gaps/{place}/{partition}/{start:020d}-{end:020d}   offsets that the egress proved lost at the source, or that
                                                       retention removed
    quarantine/{place}/{partition}/{level}/{range}     a segment that is not what its key and footer say
    leases/{name}/{token:020d}                         who does a work that one should do; the highest token holds
    proven/{region}/{place}/{number:020d}              when `verify` proved partitions of an archive (infra/archive)
    heartbeats/{owner}/{number:020d}                   a process that compacts by the clock (infra/archive)
    probe                                              put again at each start of a writer, which the store must refuse

Each is a small JSON object, written once by a conditional put and never changed.
"""

from __future__ import annotations

from formats.codec import VERSION
from formats.control.fork import LogFork
from formats.incarnation import CONTROL
from formats.segment import OffsetRange, Segment, SourcePartition, region_prefix


def place_key(prefix: str, region: str, place: str) -> str:
    return f"{control_prefix(prefix, region)}places/{place}"


def places_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}places/"


def begins_prefix(prefix: str, region: str, place: str) -> str:
    return f"{control_prefix(prefix, region)}begins/{place}/"


def begin_key(prefix: str, source: SourcePartition) -> str:
    return f"{begins_prefix(prefix, source.region, source.path)}{source.partition}"


def forks_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{control_prefix(prefix, source.region)}forks/{source.path}/{source.partition}/"


def fork_key(prefix: str, fork: LogFork) -> str:
    return f"{forks_prefix(prefix, fork.source)}{fork.next_offset:020d}"


def deeper_fork_key(prefix: str, fork: LogFork) -> str:
    """Of one that contests more than the first at that offset."""
    return f"{fork_key(prefix, fork)}-{fork.contested.start:020d}"


def gap_key(prefix: str, source: SourcePartition, offsets: OffsetRange) -> str:
    return f"{gaps_prefix(prefix, source)}{offsets.start:020d}-{offsets.end:020d}"


def gaps_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{control_prefix(prefix, source.region)}gaps/{source.path}/{source.partition}/"


def quarantine_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}quarantine/"


def quarantine_key(prefix: str, segment: Segment) -> str:
    return f"{quarantine_prefix(prefix, segment.source.region)}{str(segment).partition('/')[2]}"


def probe_key(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}probe"


def leases_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}leases/"


def lease_prefix(prefix: str, region: str, name: str) -> str:
    return f"{leases_prefix(prefix, region)}{name}/"


def control_prefix(prefix: str, region: str) -> str:
    return f"{region_prefix(prefix, region)}{CONTROL}/v1/"


def is_of_one_bucket(name: str) -> bool:
    """Whether the control object is about its bucket, and says nothing of a copy: `name` is its key without prefix."""
    return _kind(name) in ("leases", "probe", "heartbeats", "proven")


def is_of_either_side(name: str) -> bool:
    """Whether the bucket that receives copies may have such an object of its own, with another content: its own `gc`
    records what it removed, and its own readers what is damaged there."""
    return _kind(name) in ("gaps", "quarantine")


def _kind(name: str) -> str:
    """Of a control object; empty of anything else."""
    parts = name.split("/")
    return parts[3] if len(parts) > 3 and parts[1:3] == [CONTROL, f"v{VERSION}"] else ""


def is_control_key(prefix: str, key: str) -> bool:
    """Of any region."""
    head = f"{prefix}/" if prefix else ""
    return key.startswith(head) and key[len(head) :].split("/")[1:2] == [CONTROL]
