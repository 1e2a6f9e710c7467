"""Helm, and a strict reader of Kubernetes' own types: built once with Go into the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.local.cache import cache_dir, locked

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "infra" / "deploy" / "helm"
READER = Path(__file__).with_name("strict_reader")
VERSION = "v3.22.0"
KUBERNETES = "1.27.0"  # the oldest that the chart takes
BUILD_TIMEOUT = timedelta(minutes=60)
RENDER_SECONDS = 120


def helm() -> Path:
    """Build it if absent (minutes). Skips the test if Go is absent."""
    folder = cache_dir() / f"helm-{VERSION}"
    return _built(folder / "helm", ["install", f"helm.sh/helm/v3/cmd/helm@{VERSION}"], cwd=None)


def strict_reader() -> Path:
    """As `helm`. Reads YAML documents, and ends with 1 at a field that Kubernetes does not know, or of another type."""
    source = b"".join(READER.joinpath(name).read_bytes() for name in ("go.mod", "go.sum", "main.go"))
    program = cache_dir() / f"strict-reader-{hashlib.sha256(source).hexdigest()[:12]}" / "strict-reader"
    return _built(program, ["build", "-o", str(program), "."], cwd=READER)


def render(config: str, *, values: Mapping[str, Any], folder: Path) -> Sequence[Mapping[str, Any]]:
    """The objects of the chart. Raises CalledProcessError, with Helm's message in `stderr`."""
    done = subprocess.run(
        _template(config, values, folder), capture_output=True, text=True, check=True, timeout=RENDER_SECONDS
    )
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def refusal(config: str, *, values: Mapping[str, Any], folder: Path) -> str:
    """What Helm says of values that the chart does not take."""
    done = subprocess.run(
        _template(config, values, folder), capture_output=True, text=True, check=False, timeout=RENDER_SECONDS
    )
    assert done.returncode != 0, done.stdout
    return done.stderr


def _template(config: str, values: Mapping[str, Any], folder: Path) -> Sequence[str | Path]:
    (folder / "config.toml").write_text(config, encoding="utf-8")
    (folder / "values.yaml").write_text(yaml.safe_dump(dict(values)), encoding="utf-8")
    arguments = ["template", "site", str(CHART), "--namespace", "kafka", "--kube-version", KUBERNETES]
    return [helm(), *arguments, "--set-file", f"config={folder}/config.toml", "--values", folder / "values.yaml"]


def _built(program: Path, arguments: Sequence[str], *, cwd: Path | None) -> Path:
    with locked(cache_dir() / "helm.lock"):
        if not program.exists():
            if (go := shutil.which("go")) is None:
                pytest.skip("Go is not installed: neither Helm nor the reader of Kubernetes' types can be built")
            program.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(
                [go, *arguments],
                env=os.environ | {"GOBIN": str(program.parent), "GOFLAGS": "-buildvcs=false"},
                cwd=cwd,
                check=True,
                timeout=BUILD_TIMEOUT.total_seconds(),
            )
    return program
