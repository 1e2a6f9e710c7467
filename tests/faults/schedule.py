"""What goes wrong, and when: made by seed alone, so that a number is enough to see it again.

    seed ──> Schedule: 0.8 s kill ingress-1 for 0.5 s │ 1.1 s freeze egress-0 for 2.1 s │ 1.6 s PutObject loses answers

Pure: faults are values; `player.py` makes them happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from infra.runtime.crash_points import Step
from tests.faults.callbacks import Callback, Raise
from tests.faults.crash_points import WAYS, Scene, Side
from tests.faults.victim import WHENS, CrashPoint
from tests.faults.wire import Api, Severed, Silent, Unanswered, WireFault, apis
from tests.processes.notices import Dropped, Shuffled, Twice
from tests.processes.s3_proxy import ANY, Answer, Cut, Hang, Lose, Reset, Slow, Stale
from tests.processes.s3_proxy import Fault as S3Fault

SLOTS = 2  # processes of each side that run when nothing is wrong
SESSION_SECONDS = 1.5
TRANSACTION = "6s"  # how long a dead process holds up who takes its partitions, if it was a dynamic member
CRASH_SECONDS = 3.0  # to get there
CALLBACK_SECONDS = 6.0  # to be called back: who comes back takes some seconds to take a partition over
PER_SITE = 5  # schedules that follow one another on the same processes

PROTOCOLS = ("classic", "consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Membership:
    """How the processes of a site are members of their groups."""

    protocol: str
    static: bool

    def __str__(self) -> str:
        return f"{self.protocol}, {'static' if self.static else 'dynamic'}"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Slot:
    """One process slot."""

    side: Side
    number: int

    def __str__(self) -> str:
        return f"{self.side.value}-{self.number}"


# --- faults ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """SIGKILL at any moment; started again afterwards."""

    slot: Slot
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Crash:
    """SIGKILL by its own hand at a durable step: the first of a side to get there, if any does in time."""

    side: Side
    point: CrashPoint
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CallbackRaises:
    """An exception in a callback of the Kafka client: the first of a side whose callback is called, if any is."""

    side: Side
    point: Raise
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Freeze:
    """SIGSTOP, SIGCONT: a zombie, when it is longer than the session."""

    slot: Slot
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """SIGTERM: it finishes, leaves the group and ends; started again afterwards. Two rebalances."""

    slot: Slot
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """The object store, or the queue, fails for everybody."""

    operation: str
    fault: S3Fault
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerFrozen:
    region: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerKilled:
    """Its coordinators are loaded anew when it comes back."""

    region: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """Between the processes of a region and their broker."""

    region: str
    fault: WireFault
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowClients:
    """Connections to the metrics port of one process that send half a request, and stay."""

    slot: Slot
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherGroup:
    """An ingress process of another group is started with the same checkpoint topic. It has to refuse."""

    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointTopicGrows:
    """By a partition."""

    seconds: float = 0.0


Fault = (
    Kill
    | Crash
    | CallbackRaises
    | Freeze
    | Leave
    | Store
    | BrokerFrozen
    | BrokerKilled
    | Network
    | SlowClients
    | OtherGroup
    | CheckpointTopicGrows
)


def family(fault: Fault) -> str:
    """Its row in the table of what was done."""
    match fault:
        case Kill():
            return "kill -9 at any moment"
        case Crash(point=point):
            return f"kill {point.name}"
        case CallbackRaises(point=point):
            return f"exception {point.name}"
        case Freeze(slot=slot):
            return f"{slot.side.value} frozen {'past' if fault.seconds > SESSION_SECONDS else 'within'} its session"
        case Leave():
            return "member leaves and comes back"
        case Store(fault=Answer(status=status)):
            return f"store answers {status}"
        case Store(fault=Twice() | Shuffled() | Dropped() as cause):
            return f"notifications {type(cause).__name__.lower()}"
        case Store(fault=cause):
            return f"store {type(cause).__name__.lower()}"
        case BrokerFrozen():
            return f"broker frozen {'past' if fault.seconds > SESSION_SECONDS else 'within'} sessions"
        case BrokerKilled():
            return "broker killed and restarted"
        case Network(fault=Unanswered(apis=apis)):
            return f"answers to {' and '.join(sorted(api.name.lower() for api in apis))} lost"
        case Network(fault=cause):
            return f"network {type(cause).__name__.lower()}"
        case SlowClients():
            return "slow clients of the metrics port"
        case OtherGroup():
            return "another group on the checkpoint topic"
        case CheckpointTopicGrows():
            return "checkpoint topic gains a partition"


# --- schedules -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    at: float  # seconds from the first record on
    fault: Fault

    def __str__(self) -> str:
        return f"{self.at:.1f} s: {self.fault}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    seed: int
    membership: Membership
    faults: Sequence[Timed]

    @property
    def seconds(self) -> float:
        """Until the last fault is over."""
        return max((each.at + each.fault.seconds for each in self.faults), default=0.0)


def schedule(seed: int, steps: Sequence[Step], *, brokers: Sequence[str] = ("a", "b")) -> Schedule:
    """`steps`: those that product code makes."""
    random = Random(seed)
    at, faults = 0.8, []
    for fault in _faults(random, steps, brokers, random.randint(3, 5)):
        faults.append(Timed(at=round(at, 2), fault=fault))
        at += random.uniform(0.2, 1.0)
    return Schedule(seed=seed, membership=membership(seed), faults=tuple(faults))


def membership(seed: int) -> Membership:
    """The same for all schedules of a site."""
    random = Random(f"site {seed // PER_SITE}")
    return Membership(protocol=random.choice(PROTOCOLS), static=random.random() < 0.5)


def _faults(random: Random, steps: Sequence[Step], brokers: Sequence[str], count: int) -> Iterator[Fault]:
    crashable = [step for step in steps if step in WAYS and WAYS[step].scene is Scene.FLOW]
    brokers_hit = False
    for _ in range(count):
        (kind,) = random.choices(
            ("kill", "crash", "callback", "freeze", "leave", "store", "network", "broker", "belief"),
            weights=(3, 6, 4, 3, 2, 3, 3, 1, 3),
        )
        if kind == "broker" and brokers_hit:
            kind = "crash"  # one is enough for a schedule of a few seconds
        slot = Slot(side=random.choice(list(Side)), number=random.randrange(SLOTS))
        down = random.choice((0.0, 0.0, 0.5, SESSION_SECONDS + 0.5))
        match kind:
            case "kill":
                yield Kill(slot=slot, seconds=down)
            case "crash":
                step = random.choice(crashable)
                point = CrashPoint(step=step, when=random.choice(WHENS), occurrence=random.choice((1, 1, 2, 3)))
                yield Crash(side=WAYS[step].side, point=point, seconds=CRASH_SECONDS)
            case "callback":
                yield from _callback(random, slot)
            case "freeze":
                yield Freeze(slot=slot, seconds=random.choice((0.5, SESSION_SECONDS + 0.7, SESSION_SECONDS + 1.5)))
            case "leave":
                yield Leave(slot=slot, seconds=0.3)
            case "store":
                operation, fault = random.choice(STORE)
                if isinstance(fault, Cut):
                    fault = Cut(int(10 ** random.uniform(0, 4)))
                yield Store(operation=operation, fault=fault, seconds=random.uniform(0.5, 1.5))
            case "network":
                region, lost = random.choice([pair for pair in NETWORK if pair[0] in brokers])
                yield Network(region=region, fault=lost, seconds=random.uniform(0.3, 1.2))
            case "belief":
                slow = SlowClients(slot=slot, seconds=random.uniform(0.5, 1.5))
                yield random.choice((slow, OtherGroup(), CheckpointTopicGrows()))
            case _:
                brokers_hit = True
                region = random.choice(brokers)
                if random.random() < 0.3:
                    yield BrokerKilled(region=region, seconds=0.0)
                else:
                    yield BrokerFrozen(region=region, seconds=random.choice((0.7, SESSION_SECONDS + 1.0)))


def _callback(random: Random, slot: Slot) -> Iterator[Fault]:
    """The order, and what makes the client call back: else few would ever be called in time."""
    callback = random.choice([c for c in Callback if slot.side in CALLBACKS[c]])
    point = Raise(callback=callback, when=random.choice(callback.whens))
    yield CallbackRaises(side=slot.side, point=point, seconds=CALLBACK_SECONDS)
    match callback:
        case Callback.ON_ASSIGN | Callback.ON_REVOKE:
            yield Leave(slot=slot, seconds=0.3)
        case Callback.ON_LOST:
            yield Freeze(slot=slot, seconds=SESSION_SECONDS + 0.7)
        case Callback.ERROR_CB | Callback.LOGGER:
            yield Network(region="a" if slot.side is Side.EGRESS else "b", fault=Severed(), seconds=0.3)
        case Callback.ON_COMMIT | Callback.DELIVERY_REPORT:
            pass  # all the time


CALLBACKS: Mapping[Callback, Sequence[Side]] = {
    **dict.fromkeys(Callback, tuple(Side)),
    Callback.ON_COMMIT: (Side.EGRESS,),
    Callback.DELIVERY_REPORT: (Side.INGRESS,),
}
"""Who has it."""

NETWORK: Sequence[tuple[str, WireFault]] = (
    ("a", apis(Api.OFFSET_COMMIT)),
    ("a", apis(Api.JOIN_GROUP, Api.SYNC_GROUP, Api.CONSUMER_GROUP_HEARTBEAT)),
    ("a", Severed()),
    ("a", Silent()),
    ("b", apis(Api.PRODUCE)),
    ("b", apis(Api.PRODUCE)),
    ("b", apis(Api.END_TXN)),
    ("b", apis(Api.END_TXN)),
    ("b", apis(Api.ADD_PARTITIONS_TO_TXN)),
    ("b", apis(Api.ADD_OFFSETS_TO_TXN, Api.TXN_OFFSET_COMMIT)),
    ("b", apis(Api.INIT_PRODUCER_ID)),
    ("b", apis(Api.CREATE_TOPICS)),
    ("b", apis(Api.JOIN_GROUP, Api.SYNC_GROUP, Api.CONSUMER_GROUP_HEARTBEAT)),
    ("b", Severed()),
    ("b", Silent()),
)
STORE: Sequence[tuple[str, S3Fault]] = (
    (ANY, Answer(500, "InternalError")),
    (ANY, Answer(503, "SlowDown")),
    (ANY, Slow(0.5)),
    ("PutObject", Lose()),
    ("PutObject", Reset()),
    ("PutObject", Answer(409, "ConditionalRequestConflict")),
    ("GetObject", Answer(404, "NoSuchKey")),
    ("GetObject", Cut(0)),  # anywhere
    ("GetObject", Hang()),
    ("ListObjectsV2", Cut(0)),
    ("ListObjectsV2", Stale()),
    (ANY, Hang()),
    ("ReceiveMessage", Twice()),
    ("ReceiveMessage", Shuffled()),
    ("ReceiveMessage", Dropped()),
    ("DeleteMessageBatch", Lose()),
)
