"""A command that ends by itself does not retry errors that an operator has to repair: bucket, host, credentials."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from replicator import main

ROOT = Path(__file__).resolve().parent.parent.parent.parent
FEW = 3  # requests of one command: each is made once, and some are made side by side
KEYS = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "word"}

COMMANDS = (
    ("status",),
    ("gaps",),
    ("verify",),
    ("compact", "--once"),
    ("gc",),
    ("sync", "--once"),
    ("drill",),
)


class Refusing:
    """An S3 server that gives the same answer to every request."""

    def __init__(self, status: int, code: str) -> None:
        self.requests = 0
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.requests += 1
                body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_HEAD(self) -> None:
                self.do_GET()

            def do_PUT(self) -> None:
                self.do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def running(self) -> Iterator[Refusing]:
        thread = threading.Thread(target=self._server.serve_forever)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()


def config(folder: Path, endpoint_url: str) -> Path:
    file = folder / "replicator.toml"
    s3 = f'bucket = "no-bucket"\nendpoint_url = "{endpoint_url}"\nregion_name = "us-east-1"'
    file.write_text(
        f'region = "here"\n[s3]\n{s3}\n[sync.destination]\n{s3}\nprefix = "there"\n'
        '[[compaction.jobs]]\nname = "all"\n[retention.topics."^.*"]\nmax_age = "1d"\n',
        encoding="utf-8",
    )
    return file


ENVIRONMENT = {"AWS_EC2_METADATA_DISABLED": "true"}  # and no keys but those that a test gives


def surroundings(folder: Path, keys: Mapping[str, str]) -> dict[str, str]:
    clean = {n: v for n, v in os.environ.items() if not n.startswith("AWS_") and not n.lower().endswith("_proxy")}
    return {**clean, **ENVIRONMENT, "HOME": str(folder), **keys}


def without_a_retry(code: int | str | None, err: str, wanted: int) -> str:
    assert code == wanted, err
    assert "Traceback" not in err
    assert "retry" not in err
    return err


def run(folder: Path, command: tuple[str, ...], endpoint_url: str, keys: Mapping[str, str], code: int = 1) -> str:
    """The stderr of a process that failed without a retry."""
    ended = subprocess.run(
        [sys.executable, "-m", "replicator", *command, "--config", str(config(folder, endpoint_url))],
        cwd=ROOT,
        env=surroundings(folder, keys),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return without_a_retry(ended.returncode, ended.stderr, code)


Verify = Callable[..., str]


@pytest.fixture
def verify(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Verify:
    """The same of `verify` in this process, which has its modules already: a start takes a second of processor time."""

    def call(endpoint_url: str, keys: Mapping[str, str], code: int = 1) -> str:
        wanted = surroundings(tmp_path, keys)
        for name in os.environ.keys() - wanted.keys():
            monkeypatch.delenv(name)
        for name, value in wanted.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as ended:
            main.main(["verify", "--config", str(config(tmp_path, endpoint_url))])
        return without_a_retry(ended.value.code, capsys.readouterr().err, code)

    return call


QUICK = {("status",), ("compact", "--once")}  # what `make test` has time for


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=() if one in QUICK else pytest.mark.long, id=" ".join(one)) for one in COMMANDS],
)
def test_no_permission_for_anything(tmp_path: Path, command: tuple[str, ...]) -> None:
    with Refusing(403, "AccessDenied").running() as server:
        output = run(tmp_path, command, server.url, KEYS)
    assert "allow s3:" in output
    assert "on bucket no-bucket" in output
    assert server.requests <= FEW


@pytest.mark.parametrize(
    ("status", "code", "remedy"),
    [
        (404, "NoSuchBucket", "the bucket no-bucket does not exist: create it, or correct the bucket"),
        (403, "InvalidAccessKeyId", "repair the credentials"),
        (403, "SignatureDoesNotMatch", "repair the credentials"),
        (400, "ExpiredToken", "repair the credentials"),
    ],
)
def test_a_refusal_of_the_server_is_reported_with_its_remedy(
    verify: Verify, status: int, code: str, remedy: str
) -> None:
    with Refusing(status, code).running() as server:
        output = verify(server.url, KEYS)
    assert remedy in output
    assert server.requests <= FEW


def test_an_unknown_host(verify: Verify) -> None:
    assert "correct the endpoint or the region" in verify("http://no-such-host.invalid", KEYS)


def test_no_credentials(verify: Verify) -> None:
    assert "set the AWS credentials" in verify("http://127.0.0.1:9", {})


def test_a_profile_that_does_not_exist(verify: Verify) -> None:
    output = verify("http://127.0.0.1:9", {"AWS_PROFILE": "absent"}, code=2)
    assert "The config profile (absent) could not be found; correct it" in output
