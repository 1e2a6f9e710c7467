"""Values that are taken without Typer's conversion are those that Typer makes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from replicator.terminal import output
from replicator.terminal.output import group
from tests.examples import property_examples


def app_that_notes(seen: list[Any]) -> typer.Typer:
    app = group("A group.", by_panels=True)

    @app.command()
    def command(
        argument: str,
        *,
        text: str = "default",
        path: Path | None = None,
        count: Annotated[int | None, typer.Option(min=1)] = None,
        more: list[str] | None = None,
        flag: bool = False,
        noted: Annotated[str | None, typer.Option(callback=lambda value: value and f"noted {value}")] = None,
        checked: Annotated[Path | None, typer.Option(exists=True)] = None,
    ) -> None:
        seen.extend([argument, text, path, count, more, flag, noted, checked])

    @app.command()
    def another() -> None: ...

    return app


def outcome(*arguments: str) -> object:
    """What the command gets, or how the command line ends."""
    seen: list[Any] = []
    ended = CliRunner().invoke(app_that_notes(seen), ["command", *arguments])
    return seen or (ended.exit_code, ended.output)


def by_typer(*arguments: str) -> object:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(output, "take_plain_values", lambda _: None)
        return outcome(*arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("a",),
        ("",),
        ("a", "--text", ""),
        ("a", "--path", ""),
        ("a", "--path", "/"),
        ("a", "--path", "no such file"),
        ("a", "--path", "x\0y"),
        ("a", "--count", "2"),
        ("a", "--count", "0"),
        ("a", "--count", "two"),
        ("a", "--more", "1", "--more", "2"),
        ("a", "--flag"),
        ("a", "--noted", "x"),
        ("a", "--checked", "no such file"),
        ("a", "--checked", "/"),
        ("a", "--unknown"),
        ("--help",),
    ],
)
def test_the_outcome_is_that_of_typer(arguments: tuple[str, ...]) -> None:
    assert outcome(*arguments) == by_typer(*arguments)


def test_what_the_command_gets() -> None:
    assert outcome("a", "--path", "b", "--noted", "c") == [
        "a",
        "default",
        Path("b"),
        None,
        None,
        False,
        "noted c",
        None,
    ]


def test_a_path_that_cannot_be_read_is_left_to_typer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.access", lambda *_: False)  # of a file: a test may run as root
    (tmp_path / "file").touch()
    ended = outcome("a", "--path", str(tmp_path / "file"))
    assert isinstance(ended, tuple)
    assert ended[0] == 2
    assert "is not readable" in ended[1]


@property_examples()
@given(value=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8))
def test_any_text_and_any_path(value: str) -> None:
    arguments = (f"--text={value}", f"--path={value}", "--", value)
    assert outcome(*arguments) == by_typer(*arguments)
