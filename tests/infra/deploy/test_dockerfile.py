"""The Dockerfile: what it pins and leaves out; and, without a container engine, its steps in a folder of their own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra.spark.packages import PACKAGES
from tests.infra.deploy.images import DOCKERFILE, ROOT, Ignored, ignored, script, stages

TEXT = DOCKERFILE.read_text(encoding="utf-8")
STAGES = stages(TEXT)
TARGETS = ("services", "spark")
OF_SPARK = ("pyspark", "py4j")
BUILD_SECONDS = 1800


class TestWhatItSays:
    def test_the_base_is_pinned(self) -> None:
        assert re.search(r"^ARG PYTHON=\S+:3\.\d+\.\d+-slim-[a-z]+(@sha256:[0-9a-f]{64})?$", TEXT, re.MULTILINE)
        assert {one.base for one in STAGES.values()} - STAGES.keys() == {"${PYTHON}"}

    def test_dependencies_are_those_that_were_tested(self) -> None:
        (install,) = (one for one in STAGES["build"].all("RUN") if "pip install" in one)
        assert "--constraint constraints.txt '.[msk]'" in install

    @pytest.mark.parametrize("target", TARGETS)
    def test_a_target_runs_without_rights_of_root(self, target: str) -> None:
        users = [*STAGES["base"].all("USER"), *STAGES[target].all("USER")]
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1]), (
            "by number: Kubernetes cannot prove that a name is not root"
        )

    def test_java_is_in_one_target_only(self) -> None:
        assert [name for name, one in STAGES.items() if "jre" in " ".join(one.all("RUN"))] == ["spark"]

    def test_nothing_but_the_program_is_sent_to_the_build(self, context: Path) -> None:
        needed = {*PACKAGES, "pyproject.toml", "constraints.txt", "README.md", "LICENSE", "NOTICE"}
        assert {one.name for one in context.iterdir()} == needed
        deployed = context / "infra" / "deploy"
        assert {one.relative_to(deployed).as_posix() for one in deployed.rglob("*") if one.is_file()} == {
            "docker/spark-pod.sh"
        }

    def test_what_a_stage_copies_is_sent_to_the_build(self, context: Path) -> None:
        copied = [one.split() for stage in STAGES.values() for one in stage.all("COPY") if "--from=" not in one]
        missing = [name for *names, _ in copied for name in names if name[0] != "-" and not (context / name).exists()]
        assert not missing


@pytest.mark.parametrize(
    ("lines", "path", "is_excluded"),
    [
        (["*", "!a"], "a/b/c", False),
        (["*", "!a", "a/b"], "a/b/c", True),
        (["*", "!a", "a/b", "!a/b/c"], "a/b/c", False),
        (["*", "!a", "!a/b/c", "a/b"], "a/b/c", True),
        (["**/x"], "a/x/y", True),
        (["**/x"], "x", True),
        (["a?"], "abc", False),
    ],
)
def test_the_last_pattern_that_matches_decides(lines: list[str], path: str, *, is_excluded: bool) -> None:
    assert Ignored(lines).excludes(path) is is_excluded


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that a build gets."""
    folder = tmp_path_factory.mktemp("context")
    for name in ignored(DOCKERFILE.with_name("Dockerfile.dockerignore").read_text(encoding="utf-8")).context(ROOT):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.mark.long
class TestItsSteps:
    """Each target, built below a folder."""

    @pytest.mark.parametrize("target", TARGETS)
    def test_a_target_runs_the_program(self, target: str, context: Path, tmp_path: Path) -> None:
        root = tmp_path / "image"
        environment = {"PATH": f"{Path(sys.executable).parent}:{os.defpath}", "HOME": str(tmp_path)}
        steps = script(STAGES, target, context=context, root=root)
        subprocess.run(["sh"], input=steps, text=True, check=True, env=environment, timeout=BUILD_SECONDS)
        shutil.rmtree(root / "src")  # not in the target
        python = root / "opt" / "replicator" / "bin" / "python"
        for command in ("egress", "ingress", "compact"):
            done = subprocess.run(
                [python.with_name("replicator"), command, "--help"], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
        if target == "spark":
            for program in ("spark-pod", "submit.py"):  # what Kubernetes and spark-submit start
                done = subprocess.run(
                    [python.with_name(program), "--version"], capture_output=True, text=True, check=False
                )
                assert done.stdout.startswith("replicator "), done.stderr
        built = f"import {', '.join(SERVICES)}, importlib.util as u; print(*[n for n in {OF_SPARK} if u.find_spec(n)])"
        done = subprocess.run([python, "-c", built], capture_output=True, text=True, check=False, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert tuple(done.stdout.split()) == (OF_SPARK if target == "spark" else ())


SERVICES = ("replicator.services.egress", "replicator.services.ingress", "replicator.services.sync")
