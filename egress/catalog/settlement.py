"""Which partitions were at rest at one and the same moment, by two collections of the ends of their logs. Pure.

    first collection     t/0   t/1   u/0
    ── the moment ─────────────────────────      no end was read at it, and all of them are known
    second collection    t/0   t/1   u/0

1. Ends are read one partition after the other, so one collection is no state that the cluster ever had: a transaction
   may begin and end between two of its reads, and be in one partition and not in the other.
2. A high watermark never goes back. One that both collections agree on was the same at the moment between them, and so
   it is for all partitions of which they agree: their ends at one moment.
3. A last stable offset never goes back either, and is the high watermark at most. Where it was that already in the
   first collection, it was at the moment: no transaction was open there, and each that had written below the high
   watermark had its marker below it, too.
4. A marker is written only after the transaction's producer has had every record acknowledged, by all replicas in sync,
   in every partition. So a transaction with a record below the end of one settled partition has all its records below
   the ends of the others, and by 3 its markers, too. The ends split no transaction.

Where all stable offsets are read before all high watermarks, one collection has such a moment in itself, by 2 and 3.
Readers read in batches, though, and between two batches there is none; the second collection asks nothing of them.

Any part of the settled partitions has this property. It does not hold across an unclean leader election, which takes
back what was acknowledged, nor where a broker answers that was cut off from its cluster and does not know it yet.
"""

from __future__ import annotations

from collections.abc import Mapping

from formats.errors import ReplicatorError
from infra.contracts.cluster import LogEnds, TopicPartition

LogEndAnswers = Mapping[TopicPartition, LogEnds | ReplicatorError]


def may_be_settled(first: LogEndAnswers) -> list[TopicPartition]:
    """Those to collect again."""
    return [partition for partition, ends in first.items() if isinstance(ends, LogEnds) and ends.stable == ends.high]


def settled_partitions(first: LogEndAnswers, second: LogEndAnswers) -> frozenset[TopicPartition]:
    """`second` began after `first` had ended; both by the same broker versions of `infra.contracts`: of a partition its
    stable offset is read before its high watermark."""
    return frozenset(
        partition
        for partition in may_be_settled(first)
        if isinstance(one := first[partition], LogEnds)
        and isinstance(other := second.get(partition), LogEnds)
        and one.high == other.stable == other.high
    )
