"""The archived source partitions that a query selects."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql.datasource import Filter

from formats.errors import ConfigError
from formats.incarnation import Incarnation
from formats.segment import SourcePartition
from infra.archive.segments import SegmentStore
from replicator.spark_source.filters import admits
from replicator.spark_source.options import SOURCE, TOPIC, ReadOptions


def archived_sources(
    store: SegmentStore, options: ReadOptions, conditions: Sequence[Filter] = ()
) -> Iterator[SourcePartition]:
    """The archived partitions that the query selects. Raises ConfigError for a topic of which nothing is archived."""
    wanted = options.wanted
    for one, partitions in _archived(store, options).items():
        for partition in partitions:
            source = SourcePartition.of(wanted.region, one, partition)
            if selects(options, source) and all(admits(condition, source) for condition in conditions):
                yield source


def selects(options: ReadOptions, source: SourcePartition) -> bool:
    """Whether the query reads this partition, if it is archived."""
    wanted = options.wanted
    return (
        (not wanted.topics or any(pattern.matches(source.topic) for pattern in wanted.topics))
        and (wanted.partitions is None or source.partition in wanted.partitions)
        and (options.every_incarnation or source.incarnation == wanted.incarnation)
    )


def _archived(store: SegmentStore, options: ReadOptions) -> Mapping[Incarnation, Sequence[int]]:
    """The selected incarnations, each with its partitions in the archive."""
    wanted = options.wanted
    patterns = wanted.topics
    if options.every_incarnation:
        listed = store.incarnations(wanted.region)
        ones = [one for one in listed if not patterns or any(pattern.matches(one.topic) for pattern in patterns)]
    else:
        names = [pattern.text for pattern in patterns]
        if not names or any(pattern.is_expression for pattern in patterns):
            here = _listed(store, options)
            names = [name for name in here if not names or any(pattern.matches(name) for pattern in patterns)]
        ones = [Incarnation(name, wanted.incarnation) for name in names]
    found = {one: store.partitions(wanted.region, one.path) for one in ones}
    topics = [one.topic for one, partitions in found.items() if partitions]
    missing = [pattern.text for pattern in patterns if not any(map(pattern.matches, topics))]
    if missing or not topics:
        there = ", ".join(_listed(store, options)) or "nothing"
        what = (
            f"nothing is archived as {', '.join(missing) or 'any topic'}; of region {wanted.region} there is: {there}"
        )
        raise ConfigError([f"{TOPIC}: {what}"], source=SOURCE)
    return found


def _listed(store: SegmentStore, options: ReadOptions) -> list[str]:
    """Topics that have a selected incarnation in the archive."""
    wanted = options.wanted
    listed = store.incarnations(wanted.region)
    return sorted({one.topic for one in listed if options.every_incarnation or one.id == wanted.incarnation})
