"""Segment events in a queue message. Pure and total: any text is accepted, nothing is raised.

    S3 event       {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"object": {"key": "a%40b+c", …}}, …}, …]}
    S3 test event  {"Event": "s3:TestEvent", …}
    SNS            {"Type": "Notification", "Message": "<any of these>"}; raw delivery sends the message itself
    EventBridge    {"detail-type": "Object Created", "detail": {"object": {"key": "a@b c", …}}, …}

Keys are form-encoded in S3's own events and plain in EventBridge's. The same event may arrive more than once, and
events of different keys in any order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import unquote_plus

from formats.codec import VERSION
from formats.errors import MalformedEvent, MalformedKey
from formats.incarnation import CONTROL
from formats.messages.segment_events import Created, Removed, SegmentEvent
from formats.segment import SegmentInfo, parse_key, region_prefix

SENT_PROBES = f"{CONTROL}/v{VERSION}/doctor/sent/"  # folder of the doctor's probes, below a region
TEST_EVENT = "s3:TestEvent"

_CREATED = "ObjectCreated:"
_REMOVED = frozenset(
    {
        "ObjectRemoved:Delete",
        "ObjectRemoved:DeleteMarkerCreated",
        "LifecycleExpiration:Delete",
        "LifecycleExpiration:DeleteMarkerCreated",
    }
)
_MAX_DEPTH = 3  # envelopes in envelopes
_QUOTED_LENGTH = 200  # characters of a bad value in a reason


@dataclass(frozen=True, slots=True)
class ProbeEvent:
    """`replicator doctor` stored an object to see whether its notification arrives."""

    probe_id: str
    at: datetime  # UTC, by the store's clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    events: tuple[SegmentEvent, ...] = ()
    foreign: int = 0  # events of other prefixes, regions or buckets, or of control objects
    ignored: int = 0  # events that neither create nor remove an object: restores, tags, …
    probes: tuple[ProbeEvent, ...] = ()  # of `replicator doctor`
    test_event: bool = False  # S3 sends one when notifications are switched on
    problems: tuple[str, ...] = ()  # why the message, or a part of it, cannot be decoded

    @property
    def is_valid(self) -> bool:
        """True: the message is done once its events are. False: it belongs in the dead-letter queue."""
        return not self.problems


@dataclass(frozen=True, slots=True)
class _Foreign:
    pass


@dataclass(frozen=True, slots=True)
class _Ignored:
    pass


@dataclass(frozen=True, slots=True)
class _Test:
    pass


_Item = SegmentEvent | ProbeEvent | _Foreign | _Ignored | _Test | MalformedEvent


@dataclass(frozen=True, slots=True)
class _ArchiveScope:
    prefix: str
    regions: Collection[str]
    bucket: str

    def owns(self, key: str) -> bool:
        """Whether `key` may be that of a segment of the regions."""
        head = f"{self.prefix}/" if self.prefix else ""
        region, _, rest = key.removeprefix(head).partition("/")
        return key.startswith(head) and region in self.regions and not rest.startswith(f"{CONTROL}/")

    def probe_of(self, key: str) -> str:
        """Id of a probe of the doctor; empty for any other key."""
        probe_id = key.rpartition("/")[2]
        wanted = (f"{region_prefix(self.prefix, region)}{SENT_PROBES}{probe_id}" for region in self.regions)
        return probe_id if key in wanted else ""


def parse(body: str, *, prefix: str, regions: Collection[str], bucket: str = "") -> Parsed:
    """`bucket`: the archive's bucket; empty accepts messages of any bucket."""
    items = list(_items(body, _ArchiveScope(prefix, regions, bucket), depth=0))
    return Parsed(
        events=tuple(item for item in items if isinstance(item, Created | Removed)),
        foreign=sum(isinstance(item, _Foreign) for item in items),
        ignored=sum(isinstance(item, _Ignored) for item in items),
        probes=tuple(item for item in items if isinstance(item, ProbeEvent)),
        test_event=any(isinstance(item, _Test) for item in items),
        problems=tuple(str(item) for item in items if isinstance(item, MalformedEvent)),
    )


def _items(body: str, scope: _ArchiveScope, *, depth: int) -> Iterator[_Item]:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        yield MalformedEvent(f"not JSON ({type(error).__name__}): {_shown(body)}")
        return
    match message:
        case {"Records": [*records]}:
            for number, record in enumerate(records):
                yield _parse(_record, record, scope, f"record {number}")
        case {"Event": str(name)} if name == TEST_EVENT:
            yield _Test()
        case {"Type": "Notification", "Message": str(inner)} if depth < _MAX_DEPTH:
            yield from _items(inner, scope, depth=depth + 1)
        case {"detail-type": str(), "detail": dict()}:
            yield _parse(_bridged, message, scope, "EventBridge event")
        case _:
            yield MalformedEvent(f"no S3 event, SNS notification or EventBridge event: {_shown(body)}")


def _parse(read: _Reader, value: object, scope: _ArchiveScope, what: str) -> _Item:
    try:
        return read(value, scope)
    except (ValueError, OverflowError) as error:  # our errors are ValueErrors, too
        return MalformedEvent(f"{what}: {error}")


def _record(value: object, scope: _ArchiveScope) -> _Item:
    """A record of S3's own format."""
    if not _text(value, "eventSource", default="aws:s3").endswith(":s3"):
        raise MalformedEvent(f"not of S3: {_shown(value)}")
    name = _text(value, "eventName").removeprefix("s3:")
    if not name.startswith(_CREATED) and name not in _REMOVED:
        return _Ignored()
    key = unquote_plus(_text(value, "s3", "object", "key"), errors="strict")
    if scope.bucket and _text(value, "s3", "bucket", "name") != scope.bucket:
        return _Foreign()
    return _event(value, scope, key, time="eventTime", size=("s3", "object", "size") if name not in _REMOVED else ())


def _bridged(value: object, scope: _ArchiveScope) -> _Item:
    """An event of EventBridge's format."""
    if _text(value, "source", default="aws.s3") != "aws.s3":
        raise MalformedEvent(f"not of S3: {_shown(value)}")
    name = _text(value, "detail-type")
    if name not in ("Object Created", "Object Deleted"):
        return _Ignored()
    key = _text(value, "detail", "object", "key")
    if scope.bucket and _text(value, "detail", "bucket", "name") != scope.bucket:
        return _Foreign()
    return _event(value, scope, key, time="time", size=("detail", "object", "size") if name == "Object Created" else ())


def _event(value: object, scope: _ArchiveScope, key: str, *, time: str, size: tuple[str, ...]) -> _Item:
    """`size`: path of the size field; empty for a removed object."""
    if size and (probe_id := scope.probe_of(key)):
        return ProbeEvent(probe_id, _time(_text(value, time)))
    if not scope.owns(key):
        return _Foreign()
    try:
        segment = parse_key(scope.prefix, key)
    except MalformedKey as error:
        raise MalformedEvent(str(error)) from error
    at = _time(_text(value, time))
    return Created(SegmentInfo(segment, _size(_at(value, *size)), at)) if size else Removed(segment, at)


_Reader = Callable[[object, _ArchiveScope], _Item]


def _at(value: object, *path: str) -> object:
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            raise MalformedEvent(f"{'.'.join(path)} is missing: {_shown(value)}")
        value = value[name]
    return value


def _text(value: object, *path: str, default: str | None = None) -> str:
    if default is not None and isinstance(value, Mapping) and path[0] not in value:
        return default
    found = _at(value, *path)
    if not isinstance(found, str):
        raise MalformedEvent(f"{'.'.join(path)} is not text: {_shown(found)}")
    return found


def _size(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
        raise MalformedEvent(f"not a size: {_shown(value)}")
    return value


def _time(text: str) -> datetime:
    at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise MalformedEvent(f"a time without a zone: {_shown(text)}")
    return at.astimezone(UTC)


def _shown(value: object) -> str:
    """Enough of a bad value to find it, in printable characters."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # a number of thousands of digits, a value nested too deeply to print
        text = f"a {type(value).__name__} that cannot be shown"
    return ascii(text)[1:-1][:_QUOTED_LENGTH]
