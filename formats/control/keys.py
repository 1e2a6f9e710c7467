"""Keys of the archive's control objects, below `{prefix}/{region}/_control/v1/`. `path` is a topic's archive path.

    places/{path}                                      the incarnation of a topic that an archive path belongs to
    begins/{path}/{partition}                          where the archive of a partition begins;
                                                       with /{offset:020d}: earlier than recorded the first time,
                                                       since a backfill stored everything from there on
    forks/{path}/{partition}/{next_offset:020d}        the source's log was truncated below archived offsets;
                                                       with -{start:020d}: further than recorded the first time
    gaps/{path}/{partition}/{start:020d}-{end:020d}    offsets that the egress proved lost at the source, or that
                                                       retention removed, or that an operator accepted as missing;
                                                       with -accepted: an operator accepted the same offsets later
    quarantine/{path}/{partition}/{level}/{range}      a segment that does not match its key or footer
    set-aside/{path}/{partition}/{level}/{range}/{digest}
                                                       the bytes of a damaged segment that a proven copy replaced;
                                                       {digest}: the first 16 hex digits of their SHA-256
    leases/{name}/{token:020d}                         the single owner of some work; the highest token holds
    catalog/{number:020d}                              what the source cluster has: the highest number counts
    watermarks/{number:020d}                           offsets of its partitions: the highest number counts
    groups/{number:020d}                               what its consumer groups have committed: the highest counts
    schemas/{number:020d}                              what the schema registry holds: the highest number counts
    handovers/{region}/{number:020d}                   where groups that moved here from that region continue there
    heartbeat/{number:020d}                            the process that writes these is alive
    _offsetmap/{region}/{path}/{partition}/{destination}@{id}/{start:020d}-{end:020d}
                                                       pages of the offset map of one incarnation of a destination here,
                                                       by its offsets; from-{start:020d}: earlier ones were trimmed
    proven/{region}/{path}/{number:020d}               when `verify` proved partitions of an archive (infra/archive)
    heartbeats/{owner}/{number:020d}                   a process that compacts on a schedule (infra/archive)
    compaction-runs/{number:020d}                      the last whole run of each compaction job (infra/archive)
    probe                                              put again at each start of a writer; the store must reject it
    doctor/sent/{id}                                   an object of `replicator doctor`, whose notification is to arrive
    doctor/seen/{id}                                   below its own region: ingress has received that notification

Each is written once by a conditional put and never changed; all but the pages and the bytes set aside are JSON objects.
"""

from __future__ import annotations

from formats.codec import VERSION
from formats.control.fork import LogFork
from formats.errors import MalformedKey
from formats.incarnation import CONTROL, parse_incarnation
from formats.messages.delivery_checkpoint import CheckpointKey
from formats.messages.map_key import MapKey
from formats.messages.s3_notifications import SENT_PROBES
from formats.segment import OffsetRange, Segment, SourcePartition, parse_offsets, region_prefix

OFFSET_MAPS = "_offsetmap"  # folder of the copies of offset maps
SET_ASIDE = "set-aside"  # folder of damaged segments' bytes
COMPACTION_RUNS = "compaction-runs"
DOCTOR = "doctor"  # folder of the probes of notifications
_ACCEPTED = "-accepted"


def claim_key(prefix: str, region: str, path: str) -> str:
    return f"{control_prefix(prefix, region)}places/{path}"


def claims_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}places/"


def begins_prefix(prefix: str, region: str, path: str = "") -> str:
    """Of the begins of one archive path, or of all."""
    return f"{control_prefix(prefix, region)}begins/{path and f'{path}/'}"


def begin_key(prefix: str, source: SourcePartition) -> str:
    return f"{begins_prefix(prefix, source.region, source.path)}{source.partition}"


def earlier_begins_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{begin_key(prefix, source)}/"


def earlier_begin_key(prefix: str, source: SourcePartition, offset: int) -> str:
    """Key of a begin that lies before the first one recorded."""
    return f"{earlier_begins_prefix(prefix, source)}{offset:020d}"


def forks_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{control_prefix(prefix, source.region)}forks/{source.path}/{source.partition}/"


def fork_key(prefix: str, fork: LogFork) -> str:
    return f"{forks_prefix(prefix, fork.source)}{fork.next_offset:020d}"


def deeper_fork_key(prefix: str, fork: LogFork) -> str:
    """Key of a fork that contests more offsets than the first one recorded at that `next_offset`."""
    return f"{fork_key(prefix, fork)}-{fork.contested.start:020d}"


def gap_key(prefix: str, source: SourcePartition, offsets: OffsetRange) -> str:
    return f"{gaps_prefix(prefix, source)}{offsets.start:020d}-{offsets.end:020d}"


def accepted_gap_key(prefix: str, source: SourcePartition, offsets: OffsetRange) -> str:
    """Key of a gap that an operator accepts, where the same offsets were recorded before for another reason."""
    return f"{gap_key(prefix, source, offsets)}{_ACCEPTED}"


def parse_gap_name(name: str) -> OffsetRange:
    """The offsets of a gap's record, by its name in the partition's folder of gaps. Raises MalformedKey."""
    return parse_offsets(name.removesuffix(_ACCEPTED))


def gaps_prefix(prefix: str, source: SourcePartition) -> str:
    return f"{control_prefix(prefix, source.region)}gaps/{source.path}/{source.partition}/"


def quarantine_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}quarantine/"


def quarantine_key(prefix: str, segment: Segment) -> str:
    return f"{quarantine_prefix(prefix, segment.source.region)}{str(segment).partition('/')[2]}"


def set_aside_key(prefix: str, segment: Segment, digest: str) -> str:
    """`digest`: SHA-256 of the damaged object's bytes, in hex. The key names its content: where it is taken, the same
    bytes are kept."""
    name = str(segment).partition("/")[2]
    return f"{control_prefix(prefix, segment.source.region)}{SET_ASIDE}/{name}/{digest[:16]}"


def probe_key(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}probe"


def doctor_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}{DOCTOR}/"


def sent_probe_key(prefix: str, region: str, probe_id: str) -> str:
    """Below a source's region, whose notifications reach the queue."""
    return f"{region_prefix(prefix, region)}{SENT_PROBES}{probe_id}"


def seen_probe_key(prefix: str, region: str, probe_id: str) -> str:
    """Below the region of the ingress that answers: it may put there."""
    return f"{doctor_prefix(prefix, region)}seen/{probe_id}"


def leases_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}leases/"


def lease_prefix(prefix: str, region: str, name: str) -> str:
    return f"{leases_prefix(prefix, region)}{name}/"


def generations_prefix(prefix: str, region: str, kind: str) -> str:
    """Of `catalog`, `watermarks`, `groups`, `schemas` or `heartbeat`."""
    return f"{control_prefix(prefix, region)}{kind}/"


def catalog_prefix(prefix: str, region: str) -> str:
    return generations_prefix(prefix, region, "catalog")


def watermarks_prefix(prefix: str, region: str) -> str:
    return generations_prefix(prefix, region, "watermarks")


def groups_prefix(prefix: str, region: str) -> str:
    return generations_prefix(prefix, region, "groups")


def handovers_prefix(prefix: str, region: str, to: str) -> str:
    return f"{control_prefix(prefix, region)}handovers/{to}/"


def schemas_prefix(prefix: str, region: str) -> str:
    return generations_prefix(prefix, region, "schemas")


def heartbeat_prefix(prefix: str, region: str) -> str:
    return generations_prefix(prefix, region, "heartbeat")


def offset_maps_prefix(prefix: str, region: str, source_region: str = "") -> str:
    """Of the offset maps of destinations in `region`, or of those with sources in one other region."""
    head = f"{control_prefix(prefix, region)}{OFFSET_MAPS}/"
    return f"{head}{source_region}/" if source_region else head


def offset_map_prefix(prefix: str, region: str, key: MapKey) -> str:
    source, destination = key.delivery.source, key.delivery.destination_topic
    head = offset_maps_prefix(prefix, region, source.region)
    return f"{head}{source.path}/{source.partition}/{destination}@{key.destination_id}/"


def parse_offset_map_key(prefix: str, region: str, key: str) -> tuple[MapKey, str]:
    """The map that an object is of, and its name in the map's folder. Raises MalformedKey."""
    head = offset_maps_prefix(prefix, region)
    try:
        if not key.startswith(head):
            raise ValueError("elsewhere")
        source_region, path, partition, folder, name = key[len(head) :].split("/")
        source = SourcePartition.of(source_region, parse_incarnation(path), int(partition))
        destination, separator, destination_id = folder.partition("@")
        found = MapKey(CheckpointKey(source, destination), destination_id)
        if not separator or offset_map_prefix(prefix, region, found) + name != key:
            raise ValueError("not as it would be written")
    except ValueError as error:
        raise MalformedKey(f"not the key of a copy of an offset map: {key!r} ({error})") from error
    return found, name


def compaction_runs_prefix(prefix: str, region: str) -> str:
    return f"{control_prefix(prefix, region)}{COMPACTION_RUNS}/"


def control_prefix(prefix: str, region: str) -> str:
    return f"{region_prefix(prefix, region)}{CONTROL}/v1/"


def is_of_one_bucket(name: str) -> bool:
    """Whether the control object concerns its own bucket only, not copies of it. `name` is its key without prefix."""
    return _kind(name) in ("leases", "probe", "heartbeats", "proven", COMPACTION_RUNS, SET_ASIDE, DOCTOR)


def is_heartbeat(name: str) -> bool:
    """Whether only the last of these control objects says anything: the process that wrote it is alive."""
    return _kind(name) == "heartbeat"


def is_of_either_side(name: str) -> bool:
    """Whether the bucket that receives copies may have its own object at this key, with other content: its own `gc`
    records what it removed, and its own readers record what is damaged there."""
    return _kind(name) in ("gaps", "quarantine")


def _kind(name: str) -> str:
    """Kind of a control object; empty for any other key."""
    parts = name.split("/")
    return parts[3] if len(parts) > 3 and parts[1:3] == [CONTROL, f"v{VERSION}"] else ""


def is_control_key(prefix: str, key: str) -> bool:
    """Whether `key` is a control object of any region."""
    head = f"{prefix}/" if prefix else ""
    return key.startswith(head) and key[len(head) :].split("/")[1:2] == [CONTROL]
