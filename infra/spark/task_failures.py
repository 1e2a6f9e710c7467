"""Why a task did not begin, out of what Spark writes: the reason in one line, and the remedy. Pure."""

from __future__ import annotations

import re

LOST = "Lost task "  # how Spark's log begins about a failed attempt

_VERSIONS = re.compile(r"different version: (\d+\.\d+) than that in driver: (\d+\.\d+)")
_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
_PROGRAM = re.compile(r'Cannot run program "([^"]*)"')
_REMEDY_PACKAGES = (
    "install our package there, give it to spark-submit by --py-files, set compaction.ship_packages = true (which "
    "sends our own packages, not their dependencies), or send a packed environment by spark.archives: docs/spark.md"
)
_OURS = ("replicator", "egress", "ingress", "compaction", "formats", "infra")


def explain(line: str) -> str:
    """The reason and the remedy. `line`: of Spark's log, with its line breaks, or these written as \\n."""
    text = line.replace("\\n", "\n").replace("\\r", "")
    if "PYTHON_VERSION_MISMATCH" in text or "different version" in text:
        versions = _VERSIONS.search(text)
        which = f"{versions[1]}, the driver's {versions[2]}" if versions else "another version than the driver's"
        return f"the executors' Python is {which}: set spark.pyspark.python to the same version on every machine"
    if (module := _MODULE.search(text)) is not None:
        what = "our packages" if module[1].partition(".")[0] in _OURS else f"the package {module[1]}"
        return f"the executors' Python does not have {what} (No module named {module[1]!r}): {_REMEDY_PACKAGES}"
    if (program := _PROGRAM.search(text)) is not None:
        return (
            f"the executors cannot run the Python {program[1]!r}: set spark.pyspark.python to one that they have, "
            "at the same path on every machine"
        )
    return _last_error(text)


def has_lost_its_executor(error: str) -> bool:
    """Whether an attempt of a task failed because its executor or worker ended, and not by itself. `error`: Spark's
    message of it."""
    return error.startswith("ExecutorLostFailure") and "unrelated to the running tasks" in error


def _last_error(text: str) -> str:
    """Of a Python traceback the exception, else the first line."""
    lines = [one.strip() for one in text.splitlines() if one.strip() and not one.startswith("\tat ")]
    named = [one for one in lines if re.match(r"[\w.]*(Error|Exception|Unreachable|Lost|Missing)\b.*:", one)]
    return (named or lines or [text])[-1 if named else 0]
