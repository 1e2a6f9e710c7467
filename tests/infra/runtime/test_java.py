"""The Java that the embedded stack finds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from infra.runtime.java import Java, JavaMissing, find_java


def fake_java(home: Path, *, version: str = "17.0.9", modules: str = "jdk.incubator.vector@17.0.9") -> Path:
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    executable.write_text(
        "#!/bin/sh\n"
        'case "$*" in\n'
        f"*--list-modules*) printf 'java.base@{version}\\n{modules}\\n';;\n"
        f"*) echo 'openjdk version \"{version}\" 2024-01-01' >&2;;\n"
        "esac\n",
        encoding="ascii",
    )
    executable.chmod(0o755)
    return executable


class TestJava:
    def test_java_home_takes_precedence_over_path(self, tmp_path: Path) -> None:
        chosen = fake_java(tmp_path / "home", version="21.0.1")
        other = fake_java(tmp_path / "other")
        path = f"{other.parent}:/usr/bin:/bin"
        assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": path}) == Java(
            executable=chosen, version="21.0.1"
        )
        assert find_java({"PATH": path}).executable == other

    def test_an_absent_java_is_reported_with_the_package_to_install(self, tmp_path: Path) -> None:
        with pytest.raises(JavaMissing, match=r"(?s)no Java.*apt-get install openjdk-17-jre-headless.*openjdk@17"):
            find_java({"PATH": str(tmp_path)})
        with pytest.raises(JavaMissing, match=r"JAVA_HOME is .*no-such"):
            find_java({"JAVA_HOME": str(tmp_path / "no-such"), "PATH": os.environ["PATH"]})

    @pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2", "16"])
    def test_an_old_java_is_rejected(self, tmp_path: Path, version: str) -> None:
        fake_java(tmp_path, version=version)
        with pytest.raises(JavaMissing, match=f"(?s){tmp_path}.*Java {version}: too old.*needed: Java 17"):
            find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})

    def test_a_java_without_the_module_is_rejected(self, tmp_path: Path) -> None:
        fake_java(tmp_path, modules="jdk.incubator.vector.not@17")
        with pytest.raises(JavaMissing, match=r"(?s)without the module jdk.incubator.vector.*apt-get install"):
            find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})

    @pytest.mark.parametrize("script", ["#!/bin/sh\nexit 3\n", "#!/bin/sh\necho hello\n", "#!/no/such/shell\n"])
    def test_a_broken_java_is_rejected(self, tmp_path: Path, script: str) -> None:
        fake_java(tmp_path).write_text(script, encoding="ascii")
        with pytest.raises(JavaMissing, match=r"(?s)found .*needed: Java 17"):
            find_java({"JAVA_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"})
