"""The version of a local YARN is that of PySpark's Hadoop. A whole one runs in tests/processes/test_on_yarn.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.local.errors import LocalStackError
from infra.local.yarn import hadoop_version


def test_pysparks_hadoop() -> None:
    jars = [Path("jars/hadoop-client-runtime-3.5.0.jar"), Path("jars/hadoop-client-api-3.4.2.jar")]
    assert hadoop_version(jars) == "3.4.2"


@pytest.mark.parametrize("names", [[], ["hadoop-client-api-3.4.2.jar", "hadoop-client-api-3.5.0.jar"]])
def test_none_or_two_of_them(names: list[str]) -> None:
    with pytest.raises(LocalStackError, match=f"{len(names)} versions of Hadoop"):
        hadoop_version([Path(name) for name in names])
