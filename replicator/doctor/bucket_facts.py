"""Reads how a bucket and a queue are set up, and asks what these credentials may do there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from formats.control.keys import DOCTOR, control_prefix, probe_key
from formats.errors import StoreRefused
from formats.segment import region_prefix
from infra.settings.storage import S3Settings, SqsSettings
from infra.storage.bucket_setup import S3BucketSetup
from infra.storage.s3_errors import is_denied
from replicator.doctor.facts import NOT_ASKED, BucketFacts, QueueFacts, RightAnswer, Unread
from replicator.doctor.reading import Questions, attempt
from replicator.rights.iam import ArchiveAccess
from replicator.rights.table import ABORT, DELETE_OBJECT, GET, IAM, LIST, PUT, RETENTION, IamRight, In, Of
from replicator.services.setups import caller_of, queue_setup, s3_setup
from replicator.services.wiring import PROBE_TIMEOUT, s3_store

NO_OBJECT = f"{DOCTOR}/none"
"""Ends keys at which nothing is. A deletion that is only a question is of such a key: a store that does not know the
condition would delete the object, and that of a probe is in use while a service starts."""


Rows = Mapping[str, Collection[str]]


def ask_bucket(
    settings: S3Settings,
    who: Rows,
    *,
    region: str,
    sources: Sequence[str],
    questions: Questions,
    opened: ExitStack,
    now: Callable[[], datetime],
    writes: bool,
) -> Callable[[], BucketFacts]:
    """Ask everything at once; what is returned awaits the answers. `who`: rows of the table of rights that the roles
    have in this bucket, and whose archives each is for. `writes`: what leaves an object may be asked, too."""
    regions = [region, *(one for one in sources if one != region)]
    setup = attempt(partial(s3_setup, settings, opened))
    if isinstance(setup, Unread):
        nothing = _nothing(settings, regions, setup)
        return lambda: nothing
    rights = list(_rights(setup, settings, who, region, sources, writes=writes))
    allowed = [questions.ask(right.ask) for right in rights]
    clock = questions.ask(partial(setup.clock_ahead, now))
    policy, caller = questions.ask(setup.policy), questions.ask(partial(caller_of, settings, opened))
    versioned, encryption = questions.ask(setup.is_versioned), questions.ask(setup.encryption)
    public, lifecycle = questions.ask(setup.public_access), questions.ask(setup.lifecycle)
    notifications, replication = questions.ask(setup.notifications), questions.ask(setup.replication)
    key = probe_key(settings.prefix, region)
    puts = any(right.who in who and PUT in right.actions and right.covers_probe() for right in IAM)
    put = questions.ask(partial(_put, settings, key, opened)) if puts and writes else None
    stores = [f"{region_prefix(settings.prefix, one)}{NO_OBJECT}" for one in _stored_regions(settings, who, region)]
    stored = [questions.ask(partial(_refusals_of_put, settings, one, opened)) for one in stores if writes]

    def facts() -> BucketFacts:
        answers = [
            RightAnswer(action=one.action, resource=one.resource, refusal=answer.answer(), is_needed=one.is_needed)
            for one, answer in zip(rights, allowed, strict=True)
        ]
        conditional: str | Unread | None = None
        if puts:
            found = NOT_ASKED if put is None else put.answer()
            refusal, conditional = (found, found) if isinstance(found, Unread) else found
            answers.append(RightAnswer(action=PUT, resource=key, refusal=refusal))
        if stores and not writes:
            answers.append(RightAnswer(action=PUT, resource=stores[0], refusal=NOT_ASKED))
        # credentials that may delete what no role here deletes are the doctor's own, or an operator's: that these may
        # not store segments is as it should be
        are_others = any(one.action == DELETE_OBJECT and not one.is_needed and one.refusal == "" for one in answers)
        for where, asked in zip(stores, stored, strict=writes):
            refusals = asked.answer()
            if are_others and refusals and not isinstance(refusals, Unread):
                continue
            for action in (PUT, ABORT, *([RETENTION] if settings.object_lock_mode else [])):
                refusal = refusals if isinstance(refusals, Unread) else refusals.get(action, "")
                below = f"{where.removesuffix(NO_OBJECT)}*"
                answers.append(RightAnswer(action=action, resource=below, refusal=refusal))
        return BucketFacts(
            settings=settings,
            regions=regions,
            clock_ahead=clock.answer(),
            is_versioned=versioned.answer(),
            encryption=encryption.answer(),
            public_access=public.answer(),
            lifecycle=lifecycle.answer(),
            notifications=notifications.answer(),
            replication=replication.answer(),
            policy=policy.answer(),
            caller=caller.answer(),
            needed=_needed(settings, who, region, sources),
            rights=answers,
            conditional_writes="" if puts and settings.conditional_writes == "assume" else conditional,
        )

    return facts


def _nothing(settings: S3Settings, regions: Sequence[str], why: Unread) -> BucketFacts:
    """Of a bucket for which no client can be made."""
    away = Unread("the bucket cannot be asked: see bucket-unreachable")
    return BucketFacts(
        settings=settings,
        regions=regions,
        clock_ahead=why,
        is_versioned=away,
        encryption=away,
        public_access=away,
        lifecycle=away,
        notifications=away,
        replication=away,
        policy=away,
        caller=away,
        needed=[],
        rights=[],
        conditional_writes=away,
    )


@dataclass(frozen=True, slots=True)
class _Right:
    """A right, and how it is asked for: the answer is why it is refused, or empty."""

    action: str
    resource: str
    ask: Callable[[], str]
    is_needed: bool = True  # by a role


def _rights(
    setup: S3BucketSetup,
    settings: S3Settings,
    who: Rows,
    region: str,
    sources: Sequence[str],
    *,
    writes: bool,
) -> Iterator[_Right]:
    """Each action once for each region that it is needed for; of every region, for the own one."""
    needed = dict.fromkeys(
        (action, f"{_folder(settings, right.on, one if one != '*' else region)}{name.removesuffix('*')}")
        for right, archive in _rights_of(settings, who, region, sources)
        if right.on not in (In.QUEUE, In.DEAD_LETTERS)
        for action in right.actions
        for one in (archive.regions(right.of) if right.on is not In.BUCKET else [*archive.regions(Of.ONE), *sources])
        for name in right.only or [""]
    )
    for action, below in needed:
        if action == LIST:
            yield _Right(action, below, partial(setup.refusal_of_list, below))
        elif action == GET:
            yield _Right(action, f"{below}*", partial(setup.refusal_of_get, f"{below}probe"))
        elif action == DELETE_OBJECT and writes:
            yield _Right(action, f"{below}*", partial(setup.refusal_of_delete, f"{below}{NO_OBJECT}"))
    if who and writes and not any(action == DELETE_OBJECT for action, _ in needed):
        below = control_prefix(settings.prefix, region)
        ask = partial(setup.refusal_of_delete, f"{below}{NO_OBJECT}")
        yield _Right(DELETE_OBJECT, f"{below}*", ask, is_needed=False)


def _folder(settings: S3Settings, on: In, region: str) -> str:
    return control_prefix(settings.prefix, region) if on is In.CONTROL else region_prefix(settings.prefix, region)


def _rights_of(
    settings: S3Settings, who: Rows, region: str, sources: Sequence[str]
) -> Iterator[tuple[IamRight, ArchiveAccess]]:
    bucket = f"arn:aws:s3:::{settings.bucket}"
    for right in IAM:
        if (archives := who.get(right.who)) is not None:
            access = ArchiveAccess(
                bucket_arn=bucket, prefix=settings.prefix, region=region, archives=archives, sources=sources
            )
            yield right, access


def _stored_regions(settings: S3Settings, who: Rows, region: str) -> Sequence[str]:
    """Below whose prefixes the roles store segments."""
    return list(
        dict.fromkeys(
            one
            for right, archive in _rights_of(settings, who, region, ())
            if right.on is In.SEGMENTS and PUT in right.actions
            for one in archive.regions(right.of)
        )
    )


def _refusals_of_put(settings: S3Settings, key: str, opened: ExitStack) -> Mapping[str, str]:
    return s3_store(settings, 1, opened, once=True, read_timeout=PROBE_TIMEOUT).refusals_of_put(key)


def _needed(settings: S3Settings, who: Rows, region: str, sources: Sequence[str]) -> Sequence[tuple[str, str]]:
    """Actions and ARNs, each once."""
    return list(
        dict.fromkeys(
            (action, resource)
            for right, archive in _rights_of(settings, who, region, sources)
            for resource in archive.resources(right)
            for action in right.actions
        )
    )


def _put(settings: S3Settings, key: str, opened: ExitStack) -> tuple[str, str | None]:
    """Why an object may not be put, and the problem of conditional writes."""
    store = s3_store(settings, 1, opened, once=True, read_timeout=PROBE_TIMEOUT)
    try:
        return "", store.problem_of_conditional_writes(key)
    except StoreRefused as error:
        if not is_denied(error):
            raise
        return str(error), None


def queue_facts(settings: SqsSettings, opened: ExitStack) -> QueueFacts:
    """Raises ConfigError."""
    setup = attempt(queue_setup(settings, opened).read)
    dead: int | Unread | None = None
    if not isinstance(setup, Unread) and setup.dead_letter_arn:
        letters = queue_setup(settings, opened, setup.dead_letter_arn)
        found = attempt(letters.read)
        dead = found if isinstance(found, Unread) else found.waiting
    return QueueFacts(name=settings.queue.rpartition("/")[2], setup=setup, dead_letters=dead)
