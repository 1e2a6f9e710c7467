"""The log of a Java of Spark or Hadoop: lines on standard error."""

from __future__ import annotations

_CONSOLE = """\
status = error
appender.out.type = Console
appender.out.name = out
appender.out.target = SYSTEM_ERR
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = {pattern}
rootLogger.level = {level}
rootLogger.appenderRef.out.ref = out
"""


def console_log(pattern: str, level: str) -> str:
    """The content of a `log4j2.properties`, in ASCII."""
    return _CONSOLE.format(pattern=pattern, level=level)
