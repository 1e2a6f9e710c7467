"""The archived topics and partitions that a selection names, by folder names and claims: no segments are listed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from formats.errors import ConfigError, DataError, ReplicatorError
from formats.segment import SourcePartition
from formats.topic_selection import is_internal
from infra.archive.archive import Archive
from infra.archive.control import ControlStore
from infra.settings.field import region_name
from ingress.routing.succession import ArchivedIncarnation, in_order
from replicator.absent_topics import absent_from_archive, some_names
from replicator.restore.incarnations_at import IncarnationsAt
from replicator.selection import Selection


def sources_of(archive: Archive, selection: Selection) -> Sequence[SourcePartition]:
    """The selected partitions, by folder names alone: no segments are listed. Raises ConfigError as
    `incarnations_of` does, StoreUnavailable."""
    return [source for sources in selected_sources(archive, selection).values() for source in sources]


def of_all_incarnations(
    archive: Archive, selection: Selection, *, may_be_none: bool = False
) -> Sequence[SourcePartition]:
    """`sources_of`, plus the partitions of the earlier incarnations of each topic, which only the archive has, unless
    one is selected. `may_be_none`: also of topics of which no selected partition is stored."""
    wanted = selected_sources(archive, selection, may_be_none=may_be_none)
    found = [source for sources in wanted.values() for source in sources]
    topics, seen = {one.topic for one in wanted}, {one.path for one in wanted}
    stored = () if selection.incarnation is not None else archive.segments.incarnations(selection.region)
    for one in sorted(stored):
        if one.topic in topics and one.path not in seen:
            numbers = archive.segments.partitions(selection.region, one.path)
            found += [SourcePartition.of(selection.region, one, n) for n in numbers if selection.wants(one.topic, n)]
    return found


def selected_sources(
    archive: Archive, selection: Selection, at: IncarnationsAt | None = None, *, may_be_none: bool = False
) -> Mapping[ArchivedIncarnation, Sequence[SourcePartition]]:
    """The selected partitions of each selected topic, as far as anything of them is stored; with `at`, those that were
    there at its moment, whether or not it is. Topics without any are left out.

    Raises as `sources_of`, and ConfigError when no partition is left, unless there `may_be_none`.
    """
    found: dict[ArchivedIncarnation, Sequence[SourcePartition]] = {}
    stored = []
    for incarnation in incarnations_of(archive, selection, at):
        numbers = archive.segments.partitions(selection.region, incarnation.path)
        stored.append(f"{incarnation.path} has {', '.join(map(str, numbers)) or 'none'}")
        if at is not None:  # whether what they lack here was ever there is for the plan to say
            numbers = at.partitions(incarnation.topic)
        if wanted := [
            incarnation.source(selection.region, n) for n in numbers if selection.wants(incarnation.topic, n)
        ]:
            found[incarnation] = wanted
    if not found and not may_be_none:
        left_out = () if at is None else at.left_out
        problem = f"nothing is stored of the selected partitions: {'; '.join([*stored, *left_out])}"
        raise ConfigError([problem], source="archive")
    return found


def incarnations_of(
    archive: Archive, selection: Selection, at: IncarnationsAt | None = None
) -> Sequence[ArchivedIncarnation]:
    """One incarnation of each selected topic. Raises ConfigError that lists every name of which nothing is stored."""
    stored: dict[str, list[ArchivedIncarnation]] = {}
    found = archive.segments.incarnations(selection.region)
    stored_paths = {incarnation.path for incarnation in found}
    if at is not None:  # a topic of which nothing is stored is claimed all the same once egress reads it
        found = sorted({*found, *archive.control.claims.incarnations(selection.region)})

    def is_stored(one: ArchivedIncarnation) -> bool:
        return one.path in stored_paths

    elsewhere = "" if found else _elsewhere(archive, selection.region)
    topics = {incarnation.topic for incarnation in found if not is_internal(incarnation.topic, ())}
    for incarnation in found:
        if incarnation.topic in topics and selection.matches(incarnation.topic):
            stored.setdefault(incarnation.topic, []).append(ArchivedIncarnation(incarnation=incarnation))
    where = f"nothing of it is stored below {selection.region}/{elsewhere}"
    problems = [
        f"{pattern}: {where}{absent_from_archive(pattern, topics)}"
        for pattern in selection.topics
        if not any(pattern.matches(topic) for topic in stored)
    ]
    problems += [
        f"--rename {name}={selection.renaming.names[name]}: {name} is none of the topics ({', '.join(sorted(stored))})"
        for name in sorted(selection.renaming.names.keys() - stored.keys())
        if stored  # else nothing is found anyway, as the problems before it say
    ]
    chosen = []
    for topic, incarnations in sorted(stored.items()):
        try:
            selection.renaming(topic)
            if at is None or selection.incarnation is not None:
                chosen.append(_incarnation(archive.control, selection, topic, incarnations))
            elif (one := at.choose(archive.control, selection.region, topic, incarnations, is_stored)) is not None:
                chosen.append(one)
        except (ValueError, DataError) as error:
            problems.append(f"{topic}: {error}")
    if problems:
        raise ConfigError(problems, source="archive")
    return chosen


def _elsewhere(archive: Archive, region: str) -> str:
    """What to do where nothing at all is stored below `region`."""
    with suppress(ReplicatorError):  # a principal that may read one region's archive need not see the others'
        if others := [one for one in archive.segments.regions() if one != region and region_name(one) is None]:
            named = some_names(others)
            return f", nor anything else; the archive of another region is --archive-region NAME: {named}"
    return ", nor anything else; the archive of another region is --archive-region NAME"


def _incarnation(
    control: ControlStore, selection: Selection, topic: str, incarnations: Sequence[ArchivedIncarnation]
) -> ArchivedIncarnation:
    """The selected incarnation, or the last one. Raises ValueError when there is none, or the last one is not known."""
    if selection.incarnation is not None:
        found = [incarnation for incarnation in incarnations if incarnation.id == selection.incarnation]
        if not found:
            raise ValueError(f"no incarnation {selection.incarnation!r}; stored: {_named(incarnations)}")
        return found[0]
    if len(incarnations) == 1:
        return incarnations[0]
    known = {incarnation.incarnation for incarnation in incarnations} | {
        one for one in control.claims.incarnations(selection.region) if one.topic == topic
    }
    ordered, unordered = in_order(
        ArchivedIncarnation(incarnation=one, claim=control.claims.of(selection.region, one.path))
        for one in sorted(known)
    )
    if unordered or ordered[-1].path not in {incarnation.path for incarnation in incarnations}:
        raise ValueError(f"the last incarnation is not known; choose one with --incarnation: {_named(incarnations)}")
    return ordered[-1]


def _named(incarnations: Sequence[ArchivedIncarnation]) -> str:
    return ", ".join(f"{incarnation.id or 'the plain path'!r}" for incarnation in incarnations)
