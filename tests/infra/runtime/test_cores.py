from __future__ import annotations

import os
import subprocess
import sys

import pytest

ON_ONE_CORE = """
import os
os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
from infra.runtime.cores import usable_cores
print(usable_cores())
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinity")
def test_only_cores_of_the_affinity_count() -> None:
    done = subprocess.run([sys.executable, "-c", ON_ONE_CORE], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "1\n"
