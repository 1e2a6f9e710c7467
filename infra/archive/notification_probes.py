"""Probes of the way from a bucket to its queue: `replicator doctor` stores an object, and ingress answers.

    doctor ── put {prefix}/{source}/_control/v1/doctor/sent/{id} ──> bucket ──> notification ──> queue
                                                                                                   │ received
    doctor <── list ── {prefix}/{own region}/_control/v1/doctor/seen/{id} <── put ──────────── ingress

The object is below a source's region, since the notifications are filtered to those, and the answer below the region of
ingress, which may put there. Neither is a segment, so nothing else is done with either.
"""

from __future__ import annotations

import io
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from formats.control.keys import doctor_prefix, seen_probe_key, sent_probe_key
from formats.errors import SegmentExists
from infra.contracts.storage import ObjectStore
from infra.runtime.crash_points import Step, durable

LEFT_BEHIND = timedelta(hours=1)  # a doctor ends within a minute
_SENT, _SEEN = b"The notification of this object is to arrive at ingress.\n", b"It has arrived.\n"


@dataclass(frozen=True, slots=True)
class NotificationProbes:
    """As thread safe as `objects`, whose errors it raises."""

    objects: ObjectStore
    prefix: str
    region: str  # of the configuration

    def send(self, source: str, probe_id: str) -> None:
        """Store a probe below the region `source`."""
        with durable(Step.SEND_PROBE), suppress(SegmentExists):
            self.objects.put_new(sent_probe_key(self.prefix, source, probe_id), io.BytesIO(_SENT), len(_SENT))

    def answer(self, probe_id: str) -> None:
        """Note that the notification has arrived. Repeating it changes nothing."""
        with durable(Step.ANSWER_PROBE), suppress(SegmentExists):
            self.objects.put_new(seen_probe_key(self.prefix, self.region, probe_id), io.BytesIO(_SEEN), len(_SEEN))

    def is_answered(self, probe_id: str) -> bool:
        return any(True for _ in self.objects.list(seen_probe_key(self.prefix, self.region, probe_id), limit=1))

    def remove(self, source: str, probe_id: str, now: datetime) -> None:
        """Remove a probe and its answer, and what a doctor left behind that was ended."""
        folders = dict.fromkeys((doctor_prefix(self.prefix, source), doctor_prefix(self.prefix, self.region)))
        keys = [
            item.key
            for folder in folders
            for item in self.objects.list(folder)
            if item.key.endswith(f"/{probe_id}") or now - item.modified_at > LEFT_BEHIND
        ]
        if keys:
            with durable(Step.REMOVE_PROBE):
                self.objects.delete_many(keys)
