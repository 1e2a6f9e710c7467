"""Checks of the files and of the programs: settings, versions, and who writes the archive. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from replicator.doctor.facts import DeploymentFacts, Unread, known
from replicator.doctor.findings import Check, Diagnosis, Kind, Severity

ERROR, WARNING = Severity.ERROR, Severity.WARNING

INVALID = Kind(
    "config-invalid",
    ERROR,
    "no command starts with this file",
    "correct it; `replicator config explain` explains settings",
)
CONTRADICTION = Kind(
    "config-contradiction",
    ERROR,
    "each file is valid by itself, and together they lose, repeat or mix up records",
    "correct one of the files, then run `replicator config check FILE…`",
)
OLD_CLIENT = Kind(
    "librdkafka-old",
    WARNING,
    "records are proved with librdkafka 2.12 and newer; an older one was linked by the system",
    "install confluent-kafka from its wheel",
)
NO_JAVA = Kind(
    "java-missing",
    WARNING,
    "compaction runs on Spark, and a driver that starts on this machine needs Java 17",
    "install it, point JAVA_HOME at one, or run `replicator compact` elsewhere",
)
UNREADABLE = Kind(
    "archive-not-readable",
    ERROR,
    "this version, and so an ingress or a restore of it, stops at this segment",
    "upgrade readers before writers; if it is damaged, `replicator repair-segment` takes a proven copy",
)
NEWER_WRITER = Kind(
    "archive-of-newer-version",
    WARNING,
    "a newer version writes this archive: what it adds is not understood here",
    "upgrade the readers, such as ingress and restore, to the version of the writer",
)
LOWEST_CLIENT = (2, 12)
_VERSION = re.compile(r"\d+(?:\.\d+)*")


def client(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    if _numbers(facts.programs.librdkafka)[:2] < LOWEST_CLIENT:
        yield OLD_CLIENT.at("this machine", f"librdkafka is {facts.programs.librdkafka}")


def java(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    if isinstance(facts.programs.java, Unread):
        yield NO_JAVA.at("this machine", facts.programs.java.reason)


def writers(facts: DeploymentFacts) -> Iterator[Diagnosis]:
    ours = _numbers(facts.programs.replicator)
    for one in known(facts.written):
        where = f"archive of {one.region}"
        if one.problem:
            yield UNREADABLE.at(where, one.problem)
        elif _name(one.writer) == _name(facts.programs.replicator) and _numbers(one.writer) > ours:
            yield NEWER_WRITER.at(where, f"{one.writer} wrote {one.segment}, and this is {facts.programs.replicator}")


def _name(program: str) -> str:
    return program.partition(" ")[0]


def _numbers(text: str) -> tuple[int, ...]:
    found = _VERSION.search(text)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


PROGRAM_CHECKS: Sequence[Check] = (
    Check(
        name="librdkafka",
        checks="the Kafka client is new enough",
        where=lambda _: "this machine",
        judge=client,
        kinds=(OLD_CLIENT,),
        applies=lambda facts: facts.cluster is not None,
    ),
    Check(
        name="java",
        checks="there is a Java for Spark",
        where=lambda _: "this machine",
        judge=java,
        kinds=(NO_JAVA,),
        applies=lambda facts: facts.programs.java is not None,
    ),
    Check(
        name="archive-writers",
        checks="the newest segments can be read, and no newer version writes them",
        where=lambda facts: f"bucket {facts.bucket.settings.bucket}",
        judge=writers,
        kinds=(UNREADABLE, NEWER_WRITER),
    ),
)


def of_files(problems: Sequence[tuple[str, str]], between: Sequence[str]) -> Sequence[Diagnosis]:
    """Findings of the files themselves. `problems`: file and problem; `between`: contradictions of several files."""
    return [
        *(INVALID.at(source, problem) for source, problem in problems),
        *(CONTRADICTION.at("files", text) for text in between),
    ]
