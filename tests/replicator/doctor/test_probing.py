"""Which messages of the queue are the doctor's own."""

from __future__ import annotations

from functools import partial

import pytest

from formats.control.keys import sent_probe_key
from replicator.doctor.probing import is_of_probes_alone
from tests.formats.messages.test_s3_notifications import bridge, record, s3, sns

PROBE, SEGMENT = sent_probe_key("data", "there", "id"), f"data/there/orders/0/0/{0:020}-{9:020}"
is_ours = partial(is_of_probes_alone, prefix="data", sources=["there"])


@pytest.mark.parametrize("body", [s3(record(key=PROBE)), sns(s3(record(key=PROBE))), bridge(key=PROBE)])
def test_a_message_of_a_probe_alone_is_ours(body: str) -> None:
    assert is_ours(body)


@pytest.mark.parametrize(
    "body",
    [
        s3(record(key=SEGMENT)),
        s3(record(key=PROBE), record(key=SEGMENT)),
        s3(record(key=SEGMENT), record(key=PROBE)),
        s3(record(key=PROBE), record(key="data/elsewhere/orders/0/0/x")),
        s3(record(key=PROBE), record(key=SEGMENT, size="?")),
        f"not JSON, with {PROBE}",
        s3(),
    ],
)
def test_a_message_that_has_anything_else_stays(body: str) -> None:
    assert not is_ours(body)
