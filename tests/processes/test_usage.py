"""A process that has ended makes no sum smaller: reading it fails."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.processes.usage import Usage


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def test_several_processes_are_added_up(process: subprocess.Popen[bytes]) -> None:
    one, both = Usage.of(process.pid), Usage.of_all([os.getpid(), process.pid])
    assert one.rss_mib > 0
    assert both.rss_mib > one.rss_mib
    assert both.cpu_seconds > one.cpu_seconds


@pytest.mark.parametrize("is_reaped", [False, True])
def test_a_process_that_has_ended_fails(process: subprocess.Popen[bytes], is_reaped: bool) -> None:
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and is still a zombie
    if is_reaped:
        process.wait()
    with pytest.raises(ProcessLookupError, match=f"process {process.pid} has ended"):
        Usage.of_all([os.getpid(), process.pid])
