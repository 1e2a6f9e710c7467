"""A real S3 server that checks signatures and checksums: versitygw, built once with Go into the cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from infra.local.aws import CREDENTIALS
from infra.local.cache import cache_dir, locked
from infra.local.ports import HOST, free_ports, listens
from infra.local.waiting import wait_until

VERSION = "v1.8.0"
BUILD_TIMEOUT = timedelta(minutes=15)
START_TIMEOUT = timedelta(seconds=20)


def binary() -> Path:
    """Build the server if absent (minutes). Skips the test if Go is absent."""
    folder = cache_dir() / f"versitygw-{VERSION}"
    program = folder / "versitygw"
    with locked(cache_dir() / "versitygw.lock"):
        if not program.exists():
            if (go := shutil.which("go")) is None:
                pytest.skip("Go is not installed: no real S3 server can be built")
            subprocess.run(
                [go, "install", f"github.com/versity/versitygw/cmd/versitygw@{VERSION}"],
                env=os.environ | {"GOBIN": str(folder)},
                check=True,
                timeout=BUILD_TIMEOUT.total_seconds(),
            )
    return program


@contextmanager
def versitygw(folder: Path) -> Iterator[str]:
    """Run the server; yields its endpoint URL. Credentials: the embedded stack's. Objects are files in `folder`."""
    program = binary()
    (port,) = free_ports(1)
    data = folder / "data"
    data.mkdir()
    with (folder / "versitygw.log").open("wb") as log:
        process = subprocess.Popen(
            [program, "--port", f"{HOST}:{port}", "--quiet", "--keep-alive", "posix", data],
            env=os.environ
            | {
                "ROOT_ACCESS_KEY": CREDENTIALS["aws_access_key_id"],
                "ROOT_SECRET_KEY": CREDENTIALS["aws_secret_access_key"],
            },
            stdout=log,
            stderr=log,
        )
        try:
            ended = threading.Event()

            def up() -> bool:
                if process.poll() is not None:
                    ended.set()
                return listens(port)

            if not wait_until(up, START_TIMEOUT, stop=ended):
                pytest.fail(
                    f"versitygw does not start: {(folder / 'versitygw.log').read_text(errors='replace')[-2000:]}"
                )
            yield f"http://{HOST}:{port}"
        finally:
            process.terminate()
            process.wait(20)
