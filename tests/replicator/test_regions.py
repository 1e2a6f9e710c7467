"""A file of several regions on the command line: --region, $REPLICATOR_REGION and FILE#REGION."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from formats.errors import ConfigError
from replicator import main
from replicator.config import Config
from replicator.terminal import output
from replicator.terminal.options import selected
from replicator.terminal.region_option import REGION_VARIABLE, _note
from tests.replicator.config.config_texts import SMALL
from tests.replicator.config.test_flows import TWO, VARIABLES
from tests.replicator.test_main import commands

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(main.CONFIG_VARIABLE, raising=False)
    monkeypatch.delenv(REGION_VARIABLE, raising=False)
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    path = tmp_path / "all.toml"
    path.write_text(TWO)
    return path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as caught:
            main.main(list(arguments))
        out, err = capsys.readouterr()
        return (caught.value.code if isinstance(caught.value.code, int) else 0), out, err

    return call


def test_every_command_that_takes_a_file_takes_a_region() -> None:
    for path, command in commands(typer.main.get_command(main.app)):
        names = [name for parameter in command.params for name in parameter.opts]
        assert names.count("--region") == names.count("--config"), path


def test_the_option_picks_a_region(run: Run, file: Path) -> None:
    code, out, _ = run("config", "show", "--config", str(file), "--region", "us-west", "--json")
    assert (code, json.loads(out)["s3"]["bucket"]) == (0, "segments-us-west")


def test_the_variable_picks_one_and_the_option_beats_it(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REGION_VARIABLE, "us-west")
    show = ("config", "show", "--config", str(file), "--json")
    assert json.loads(run(*show)[1])["region"] == "us-west"
    assert json.loads(run(*show, "--region", "us-east")[1])["region"] == "us-east"
    assert json.loads(run("config", "show", "--config", f"{file}#us-east", "--json")[1])["region"] == "us-east"
    assert json.loads(run(*show)[1])["region"] == "us-west", "an option holds for its own command"


@pytest.mark.parametrize("command", [("config", "show"), ("status",), ("restore", "x"), ("config", "check")])
def test_two_are_picked(run: Run, file: Path, command: tuple[str, ...]) -> None:
    """--region of `restore` was once the archive that is read: the file's own region, too, is one to write to."""
    named = [f"{file}#us-west"] if "check" in command else ["--config", f"{file}#us-west"]
    code, _, err = run(*command, *named, "--region", "us-east")
    assert code == 2
    assert "names two regions, 'us-west' and 'us-east': leave one of them out" in err
    assert run("config", "show", "--config", f"{file}#us-west", "--region", "us-west")[0] == 0


@pytest.mark.parametrize("command", [("egress",), ("status",), ("gaps",), ("restore", "x"), ("config", "explain")])
def test_none_is_picked(run: Run, file: Path, command: tuple[str, ...]) -> None:
    code, _, err = run(*command, "--config", str(file))
    assert code == 2
    assert "name one of them with --region NAME, or $REPLICATOR_REGION: us-east, us-west" in err


@pytest.mark.parametrize("command", [("ingress",), ("plan",), ("verify",), ("explain", "topic", "x")])
def test_one_that_is_not_there(run: Run, file: Path, command: tuple[str, ...]) -> None:
    code, _, err = run(*command, "--config", str(file), "--region", "us-eest")
    assert code == 2
    assert "has no region 'us-eest' (did you mean" in err


def test_a_file_of_one_region_is_not_taken_for_another(run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text(SMALL)
    assert run("config", "show", "--config", str(file), "--region", "us-east-1")[0] == 0
    code, _, err = run("status", "--config", str(file), "--region", "us-west-1")
    assert code == 2
    assert "region: is 'us-east-1': this is not the file of the region 'us-west-1'" in err
    monkeypatch.setenv(REGION_VARIABLE, "us-west-1")
    assert run("config", "show", "--config", str(file))[0] == 2


class TestOfAnArchive:
    """`restore`, `verify` and `drill` read the archive of another region, too."""

    def chosen(self, file: Path, option: str | None, archive: str | None = None) -> tuple[Config, str]:
        _note(SimpleNamespace(meta={}), option)  # type: ignore[arg-type]
        settings = output.load_config_of_archive(file)
        found = selected(settings, ["x"], archive, None, None, None, None, None, None, ())
        return settings, found.region

    def test_of_several_regions(self, file: Path) -> None:
        settings, region = self.chosen(file, "us-west")
        assert (settings.region, region) == ("us-west", "us-west")
        settings, region = self.chosen(file, "us-west", "us-east")
        assert (settings.region, region) == ("us-west", "us-east")

    def test_of_one_region(self, file: Path) -> None:
        file.write_text(SMALL)
        assert [
            self.chosen(file, option, archive)[1] for option, archive in ((None, None), ("a", None), ("a", "b"))
        ] == [
            "us-east-1",
            "a",
            "b",
        ]
        assert self.chosen(file, "a")[0].region == "us-east-1"

    def test_other_files_are_none_of_its_region(self, file: Path) -> None:
        self.chosen(file, "us-west")
        assert output.load_other_config(Path(f"{file}#us-east")).region == "us-east"
        with pytest.raises(ConfigError, match="name one of them, as FILE#REGION: us-east, us-west"):
            output.load_other_config(file)


class TestCheck:
    def test_of_every_region(self, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(REGION_VARIABLE, "us-west")
        code, out, _ = run("config", "check", str(file))
        assert code == 0
        assert out.splitlines() == [
            f"{file}#us-east: no problems; region us-east, egress of 2 topic rules, ingress of 1 source",
            f"{file}#us-west: no problems; region us-west, egress of 1 topic rule, ingress of 2 sources",
            "2 regions: they do not contradict each other",
        ]

    @pytest.mark.parametrize("arguments", [("all.toml", "--region", "us-east"), ("all.toml#us-east",)])
    def test_of_one_with_its_variables_only(
        self, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
    ) -> None:
        monkeypatch.delenv("US_WEST_PASSWORD")
        assert run("config", "check", *arguments)[0] == 0
        code, _, err = run("config", "check", "all.toml")
        assert code == 2
        assert "US_WEST_PASSWORD is not set" in err

    def test_the_form_of_the_file_is_named_once(self, run: Run, file: Path) -> None:
        file.write_text(TWO.replace("us-east->", "us-eest->"))
        code, _, err = run("config", "check", str(file))
        assert code == 2
        assert err.count("there is no cluster 'us-eest' (did you mean 'us-east'?)") == 1

    def test_loops_between_its_regions(self, run: Run, file: Path) -> None:
        file.write_text(TWO.replace("[flow_defaults]", '[flow_defaults]\nreplication_policy = "identity"'))
        code, out, _ = run("config", "check", str(file))
        assert code == 0
        assert f'note: {file}#us-west: flows."us-east->us-west".topics: delivers ' in out
        own = '[flow_defaults]\nreplication_policy = "identity"'
        text = TWO.replace("[flow_defaults]", own)
        file.write_text(text.replace("[cluster_defaults.ingress]", "[cluster_defaults.ingress]\ncreate_topics = false"))
        code, _, err = run("config", "check", str(file))
        assert code == 2
        assert f'{file}#us-west: flows."us-east->us-west".topics: delivers ' in err
        assert "for ever" in err

    def test_of_one_file_beside_others(self, run: Run, file: Path, tmp_path: Path) -> None:
        other = tmp_path / "other.toml"
        other.write_text(SMALL + '[sqs]\nqueue = "q"\n[[ingress.sources]]\nregion = "us-eest"\ntopic = "orders"\n')
        code, _, err = run("config", "check", str(file), str(other))
        assert code == 2
        assert "no file is of region 'us-eest' (did you mean 'us-east'?)" in err
