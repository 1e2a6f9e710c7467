"""Reads how a bucket and a queue are set up, and asks what these credentials may do there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial

from formats.control.keys import control_prefix, probe_key
from formats.errors import StoreRefused
from formats.segment import region_prefix
from infra.settings.storage import S3Settings, SqsSettings
from infra.storage.bucket_setup import S3BucketSetup
from infra.storage.s3_errors import is_denied
from replicator.doctor.facts import NOT_ASKED, BucketFacts, QueueFacts, RightAnswer, Unread
from replicator.doctor.reading import Questions, attempt
from replicator.rights.iam import ArchiveAccess
from replicator.rights.table import DELETE_OBJECT, GET, IAM, LIST, PUT, In
from replicator.services.setups import caller_of
from replicator.services.wiring import PROBE_TIMEOUT, queue_setup, s3_setup, s3_store

RightQuestion = tuple[str, str, bool, Callable[[], str]]  # action, resource, whether a role needs it, and the question


def bucket_facts(
    settings: S3Settings,
    who: Collection[str],
    *,
    region: str,
    sources: Sequence[str],
    questions: Questions,
    opened: ExitStack,
    now: Callable[[], datetime],
    writes: bool,
) -> BucketFacts:
    """`who`: rows of the table of rights that the roles have in this bucket. `writes`: what leaves an object may be
    asked, too. Raises ConfigError."""
    setup = s3_setup(settings, opened)
    puts = any(right.who in who and PUT in right.actions for right in IAM)
    asked = list(_rights(setup, settings, who, region, sources, writes=writes))
    clock = questions.ask(partial(setup.clock_ahead, now))
    policy, caller = questions.ask(setup.policy), questions.ask(partial(caller_of, settings, opened))
    versioned, encryption = questions.ask(setup.is_versioned), questions.ask(setup.encryption)
    public, lifecycle = questions.ask(setup.public_access), questions.ask(setup.lifecycle)
    notifications, replication = questions.ask(setup.notifications), questions.ask(setup.replication)
    answers = [questions.ask(question) for _, _, _, question in asked]
    rights = [
        RightAnswer(action=action, resource=resource, refusal=answer.answer(), is_needed=is_needed)
        for (action, resource, is_needed, _), answer in zip(asked, answers, strict=True)
    ]
    conditional: str | Unread | None = None
    if puts:
        key = probe_key(settings.prefix, region)
        put, conditional = _put(settings, key, questions, opened) if writes else (NOT_ASKED, NOT_ASKED)
        rights.append(RightAnswer(action=PUT, resource=key, refusal=put))
        conditional = "" if settings.conditional_writes == "assume" else conditional
    return BucketFacts(
        settings=settings,
        regions=[region, *(one for one in sources if one != region)],
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
        rights=rights,
        conditional_writes=conditional,
    )


def _rights(
    setup: S3BucketSetup,
    settings: S3Settings,
    who: Collection[str],
    region: str,
    sources: Sequence[str],
    *,
    writes: bool,
) -> Iterator[RightQuestion]:
    """Each action once for each region that it is needed for; of every region, for the own one."""
    archive = ArchiveAccess(bucket_arn="", prefix=settings.prefix, region=region, sources=sources)
    needed = dict.fromkeys(
        (action, right.on, one if one != "*" else region)
        for right in IAM
        if right.who in who and right.on not in (In.QUEUE, In.DEAD_LETTERS)
        for action in right.actions
        for one in (archive.regions(right.of) if right.on is not In.BUCKET else [region, *sources])
    )
    for action, on, one in needed:
        below = control_prefix(settings.prefix, one) if on is In.CONTROL else region_prefix(settings.prefix, one)
        key = f"{below}probe"
        if action == LIST:
            yield action, below, True, partial(setup.refusal_of_list, below)
        elif action == GET:
            yield action, f"{below}*", True, partial(setup.refusal_of_get, key)
        elif action == DELETE_OBJECT and writes:
            yield action, f"{below}*", True, partial(setup.refusal_of_delete, key)
    if who and writes and not any(action == DELETE_OBJECT for action, _, _ in needed):
        key = probe_key(settings.prefix, region)
        below = control_prefix(settings.prefix, region)
        yield DELETE_OBJECT, f"{below}*", False, partial(setup.refusal_of_delete, key)


def _needed(
    settings: S3Settings, who: Collection[str], region: str, sources: Sequence[str]
) -> Sequence[tuple[str, str]]:
    """Actions and ARNs, each once."""
    archive = ArchiveAccess(
        bucket_arn=f"arn:aws:s3:::{settings.bucket}", prefix=settings.prefix, region=region, sources=sources
    )
    return list(
        dict.fromkeys(
            (action, resource)
            for right in IAM
            if right.who in who
            for resource in archive.resources(right)
            for action in right.actions
        )
    )


def _put(
    settings: S3Settings, key: str, questions: Questions, opened: ExitStack
) -> tuple[str | Unread, str | Unread | None]:
    """Whether an object may be put, and the problem of conditional writes."""
    store = s3_store(settings, 1, opened, once=True, read_timeout=PROBE_TIMEOUT)

    def put() -> tuple[str, str | None]:
        try:
            return "", store.problem_of_conditional_writes(key)
        except StoreRefused as error:
            if not is_denied(error):
                raise
            return str(error), None

    found = questions.ask(put).answer()
    return (found, found) if isinstance(found, Unread) else found


def queue_facts(settings: SqsSettings, opened: ExitStack) -> QueueFacts:
    """Raises ConfigError."""
    setup = attempt(queue_setup(settings, opened).read)
    dead: int | Unread | None = None
    if not isinstance(setup, Unread) and setup.dead_letter_arn:
        letters = queue_setup(settings, opened, setup.dead_letter_arn)
        found = attempt(letters.read)
        dead = found if isinstance(found, Unread) else found.waiting
    return QueueFacts(name=settings.queue.rpartition("/")[2], setup=setup, dead_letters=dead)
