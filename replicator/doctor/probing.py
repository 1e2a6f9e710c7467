"""Sends a probe object along the way of a segment's notification, and finds out where it arrives.

A running ingress takes messages from the queue, and answers in the bucket: nothing is taken away from it. Only where no
process is in its group does the doctor search the queue itself, and removes the messages that are of its probes alone;
the others stay there, and become visible again within seconds.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial

from formats.errors import StoreUnavailable
from formats.messages.s3_notifications import parse
from infra.archive.notification_probes import NotificationProbes
from infra.contracts.deployment import QueueSetup
from infra.runtime.lifecycle import Clock, Deadline, Stop
from infra.storage.queue_setup import SqsQueueSetup
from replicator.doctor.facts import ProbeFacts, Unread

WAIT = timedelta(seconds=20)  # S3 notifies within seconds, typically
POLL = timedelta(milliseconds=250)
RECEIVE = timedelta(seconds=1)  # how long one request to the queue waits
MOST_WAITING = 100  # messages in a queue that is searched


@dataclass(frozen=True, slots=True)
class Prober:
    probes: NotificationProbes
    queue: SqsQueueSetup
    clock: Clock
    wait: timedelta

    def probe(
        self, sources: Sequence[str], setup: QueueSetup | Unread, members: int | Unread
    ) -> Sequence[ProbeFacts] | Unread:
        """`setup`: of the queue. `members`: of the group of ingress. Raises StoreUnavailable, QueueUnavailable."""
        if isinstance(setup, Unread):
            return setup
        if isinstance(members, Unread):
            return Unread(f"it is not known whether an ingress runs, which would answer: {members.reason}")
        if members == 0 and setup.waiting > MOST_WAITING:
            return Unread(
                f"no ingress runs, and {setup.waiting} messages wait in the queue: start ingress, and run again"
            )
        ids = {source: uuid.uuid4().hex for source in sources}
        try:
            for source, probe_id in ids.items():
                self.probes.send(source, probe_id)
            return self._awaited(ids, setup, reads_queue=members == 0)
        finally:
            for source, probe_id in ids.items():
                # who may not delete leaves some bytes behind, which a doctor with the right removes
                with suppress(StoreUnavailable):
                    self.probes.remove(source, probe_id, self.clock.now())

    def _awaited(self, ids: dict[str, str], setup: QueueSetup, *, reads_queue: bool) -> Sequence[ProbeFacts] | Unread:
        stop, deadline = Stop(), Deadline(self.wait)
        arrived: dict[str, str] = {}
        while len(arrived) < len(ids) and not deadline.expired:
            for source, probe_id in ids.items():
                if source in arrived:
                    continue
                if self.probes.is_answered(probe_id):
                    arrived[source] = "ingress"
                elif reads_queue:
                    found = self.queue.find(
                        probe_id,
                        max_receive_count=setup.max_receive_count,
                        wait=RECEIVE,
                        removes=partial(is_of_probes_alone, prefix=self.probes.prefix, sources=list(ids)),
                    )
                    if found is None:
                        return Unread(
                            "no ingress runs, and messages in the queue were received so often that one more time "
                            "might move them to the dead-letter queue: start ingress first"
                        )
                    if found:
                        arrived[source] = "queue"
            if len(arrived) < len(ids):
                stop.wait(min(POLL, deadline.left))
        return [ProbeFacts(source=source, arrived_at=arrived.get(source, ""), waited=self.wait) for source in ids]


def is_of_probes_alone(body: str, *, prefix: str, sources: Sequence[str]) -> bool:
    """Whether every event of a message is of a probe: a message may hold several events."""
    parsed = parse(body, prefix=prefix, regions=sources)
    return bool(parsed.probes) and not (parsed.events or parsed.foreign or parsed.problems)
