"""All checks, in the order of their findings, and all kinds of findings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from replicator.doctor.bucket_checks import BUCKET_CHECKS
from replicator.doctor.cluster_checks import CLUSTER_CHECKS
from replicator.doctor.findings import Check, Kind
from replicator.doctor.key_checks import KEY_CHECKS
from replicator.doctor.program_checks import CONTRADICTION, INVALID, PROGRAM_CHECKS
from replicator.doctor.queue_checks import QUEUE_CHECKS
from replicator.doctor.topic_checks import TOPIC_CHECKS

CHECKS: Sequence[Check] = (
    *(*CLUSTER_CHECKS, *TOPIC_CHECKS),
    *(*BUCKET_CHECKS, *KEY_CHECKS, *QUEUE_CHECKS, *PROGRAM_CHECKS),
)

KINDS: Mapping[str, Kind] = {
    kind.name: kind for kind in (INVALID, CONTRADICTION, *(kind for check in CHECKS for kind in check.kinds))
}
