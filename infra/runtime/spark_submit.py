"""Whether spark-submit has started this process. Needs no Spark, so each command can ask."""

from __future__ import annotations

import os

_VARIABLE = "PYSPARK_GATEWAY_PORT"  # of the process's environment: where the Java of spark-submit listens


def is_submitted() -> bool:
    return _VARIABLE in os.environ
