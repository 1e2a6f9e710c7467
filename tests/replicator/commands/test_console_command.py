from __future__ import annotations

from pathlib import Path

import pytest

from replicator import main

CONFIG = """
region = "here"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
[egress.topics."^orders.*"]
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("REPLICATOR_CONSOLE_TOKEN", raising=False)
    path = tmp_path / "my.toml"
    path.write_text(CONFIG)
    return path


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main.main(["console", *arguments])
    assert caught.value.code == 2
    return " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        (["--listen", "0.0.0.0:8481"], "can be reached from other machines: give --token-file"),
        (["--listen", "[::]:8481"], "can be reached from other machines"),
        (["--listen", "8481"], "not HOST:PORT, such as 127.0.0.1:8481"),
        (["--listen", "localhost:99999"], "not HOST:PORT"),
        (["--listen", "0.0.0.0:0", "--proxy", "10.0.0.1"], "--proxy and --user-header belong together"),
        (["--refresh", "1s"], "at least 5s"),
        (["--refresh", "soon"], "is not a duration"),
        (["--token-file", "/nowhere/token"], "--token-file /nowhere/token cannot be read"),
    ],
)
def test_wrong_options(file: Path, capsys: pytest.CaptureFixture[str], options: list[str], wanted: str) -> None:
    assert wanted in refused(capsys, "--config", str(file), *options)


@pytest.mark.parametrize(("token", "wanted"), [("", "is empty"), ("short\n", "too short")])
def test_tokens_that_are_none(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], token: str, wanted: str
) -> None:
    (tmp_path / "token").write_text(token)
    assert wanted in refused(capsys, "--config", str(file), "--token-file", str(tmp_path / "token"))


def test_a_token_of_the_environment_is_checked_and_not_printed(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLICATOR_CONSOLE_TOKEN", "zyxwv")
    found = refused(capsys, "--config", str(file))
    assert "too short" in found
    assert "zyxwv" not in found
