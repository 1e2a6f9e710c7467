from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from infra.local.ports import free_ports
from replicator import main
from replicator.commands.top import reading_interval

CONFIG = """
region = "here"
[kafka]
"bootstrap.servers" = "localhost:9092"
[s3]
bucket = "b"
[egress.topics."^orders.*"]
[egress.topics.orders]
max_segment_age = "1m"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "my.toml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the commands from finding a configuration file of this machine."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(main.CONFIG_VARIABLE, raising=False)


class Result:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


Run = Callable[..., Result]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*arguments: str) -> Result:
        with pytest.raises(SystemExit) as caught:
            main.main(list(arguments))
        out, err = capsys.readouterr()
        code = caught.value.code
        return Result(code if isinstance(code, int) else 0, out, err)

    return call


class TestUsage:
    def test_version(self, run: Run) -> None:
        result = run("--version")
        assert (result.code, result.out) == (0, f"replicator {version('kafka-segment-replicator')}\n")

    @pytest.mark.parametrize(("argument", "code", "asks_spark"), [("--version", 1, True), ("--no-such", 2, False)])
    def test_under_spark_submit_a_success_ends_with_its_spark(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, argument: str, code: int, asks_spark: bool
    ) -> None:
        """Here its Java has ended, which is an error of whatever asks for it."""
        monkeypatch.setenv("PYSPARK_GATEWAY_PORT", str(*free_ports(1)))
        monkeypatch.setenv("PYSPARK_GATEWAY_SECRET", "secret")
        result = run(argument)
        assert (result.code, "the Java of spark-submit has ended" in result.err) == (code, asks_spark)

    @pytest.mark.parametrize("group", [(), ("client",), ("config",), ("explain",), ("local",), ("checkpoints",)])
    def test_help_names_every_command(self, run: Run, group: tuple[str, ...]) -> None:
        result = run(*group, "--help")
        assert result.code == 0
        wanted = {
            (): [
                *("egress", "ingress", "sync", "config", "explain", "local", "demo"),
                *("compact", "gc", "status", "gaps", "skip", "release", "adopt", "checkpoints", "client"),
            ],
            ("client",): [
                *("hops", "upstream", "topics", "heartbeats", "checkpoints", "offset-syncs", "offsets", "lag"),
            ],
            ("config",): ["check", "show", "schema", "explain", "import-mm1", "import-mm2"],
            ("explain",): ["topic", "group"],
            ("local",): ["up", "env", "status", "down"],
            ("checkpoints",): ["show", "seed"],
        }[group]
        assert all(word in result.out for word in wanted)

    @pytest.mark.parametrize(
        ("arguments", "advice"),
        [
            (("egress", "--tasks", "2"), "--tasks is of --spark"),
            (("egress", "--spark", "--tasks", "0"), "--tasks"),
            (("ingress", "--spark", "--take-over", "old"), "run it without --spark"),
        ],
    )
    def test_options_of_services_on_spark(self, run: Run, file: Path, arguments: tuple[str, ...], advice: str) -> None:
        result = run(*arguments, "--config", str(file))
        assert result.code == 2
        assert advice in " ".join(result.err.split())

    @pytest.mark.parametrize(
        "arguments",
        [
            ("nope",),
            ("config", "check", "--nope"),
            ("explain", "topic"),
            ("gc", "--nope"),
            ("skip", "a/t/0", "5"),
            ("skip", "a/t/0", "5", "--reason", " "),
            ("skip", "a/t/0", "5", "--reason", "x", "--through", "4"),
            ("skip", "a/t/0", "-5", "--reason", "x"),
            ("release", "a"),
            ("checkpoints", "seed", "a/t"),
            ("checkpoints", "seed", "a/t", "--offset", "1", "--ancestor-topic", "x"),
            ("checkpoints", "seed", "a/t", "--group", "g"),
            ("checkpoints", "seed", "a/t", "--timestamp", "2026-01-01T00:00:00"),
            ("checkpoints", "show", "--source", "a"),
        ],
    )
    def test_wrong_usage(self, run: Run, arguments: tuple[str, ...]) -> None:
        result = run(*arguments)
        assert result.code == 2
        assert "Traceback" not in result.err

    def test_help_fits_one_screen(self, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
        """Every command has one line, below its panel."""
        monkeypatch.setenv("COLUMNS", "80")
        lines = run("--help").out.splitlines()
        assert len(lines) <= 37
        root = typer.main.get_command(main.app)
        assert isinstance(root, TyperGroup)
        panels = {}
        for name, command in root.commands.items():
            assert isinstance(command, TyperCommand | TyperGroup)
            panels[name] = command.rich_help_panel
        panel, shown = "", {}
        for line in lines[lines.index(f"{main.RUN}:") :]:
            panel = line.rstrip(":") if not line.startswith(" ") else panel
            if line.startswith("  "):
                shown[line.split()[0]] = panel
        assert shown == panels
        assert set(shown.values()) == {main.RUN, main.INSPECT, main.REPAIR, main.RESTORE, main.LOCAL}

    @pytest.mark.parametrize(
        ("line", "word", "expected"),
        [
            ("replicator ver", 1, ["verify"]),
            ("replicator config ", 2, ["check", "explain", "import-mm1", "import-mm2", "schema", "show"]),
        ],
    )
    def test_the_shell_completes_commands(
        self, run: Run, monkeypatch: pytest.MonkeyPatch, line: str, word: int, expected: list[str]
    ) -> None:
        monkeypatch.setenv("_REPLICATOR_COMPLETE", "complete_bash")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(word))
        result = run()
        assert (result.code, sorted(result.out.split())) == (0, expected)

    def test_help_is_in_the_imperative(self) -> None:
        for path, command in commands(typer.main.get_command(main.app)):
            first = (command.help or "").split()[0]
            assert not first.endswith(("s", "ing")), path
            assert first not in ("The", "How", "This", "It"), path

    def test_as_a_module_without_heavy_imports(self) -> None:
        """`--help` is fast because it does not import Kafka, Arrow or AWS modules."""
        code = (
            "import sys, runpy; sys.argv = ['replicator', '--help']\n"
            "try: runpy.run_module('replicator', run_name='__main__')\n"
            "except SystemExit as e: assert not e.code\n"
            "heavy = {'pyarrow', 'confluent_kafka', 'boto3', 'botocore', 'pyspark', 'moto', 'awscrt'}\n"
            "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
        )
        started = time.monotonic()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        assert "egress" in done.stdout
        assert time.monotonic() - started < 10  # 0.2 s alone; this machine may be busy

    @pytest.mark.parametrize("module", ["replicator.services.retention", "replicator.services.clients"])
    def test_gc_and_status_do_not_load_arrow(self, module: str) -> None:
        code = f"import sys, {module}; assert 'pyarrow' not in sys.modules"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("columns", [80, 40])
    def test_help_cuts_nothing(self, run: Run, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
        """Every option has its whole name and every command a whole sentence, however narrow the terminal is."""
        monkeypatch.setenv("COLUMNS", str(columns))
        for path, command in commands(typer.main.get_command(main.app)):
            shown = run(*path, "--help").out
            assert "…" not in shown
            for line in shown.splitlines():
                assert not line.endswith("...") or "[OPTIONS]" in line or "[ARGS]" in line or "topics" in line, line
            names = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
            words = re.split(r",?\s+", shown)  # an option may have several names
            assert {name for name in names if name.startswith("--") and name not in words} <= {"--help"}, path


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """All commands below a group."""
    yield path, command
    for name, below in getattr(command, "commands", {}).items():
        yield from commands(below, (*path, name))


class TestConfigFile:
    def test_given(self, run: Run, file: Path) -> None:
        result = run("config", "check", "--config", str(file))
        assert (result.code, result.out) == (0, f"{file}: no problems; region here, egress of 2 topic rules\n")

    def test_by_the_environment(self, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(main.CONFIG_VARIABLE, str(file))
        assert str(file) in run("config", "check").out

    def test_by_default(self, run: Run, file: Path) -> None:
        file.rename(file.with_name("replicator.toml"))
        assert run("config", "check").out.startswith("replicator.toml: no problems")

    @pytest.mark.parametrize(
        "command", [("egress",), ("ingress",), ("sync", "--once"), ("config", "show"), ("status",), ("gaps",)]
    )
    def test_missing(self, run: Run, command: tuple[str, ...]) -> None:
        result = run(*command)
        assert result.code == 2
        assert result.err.startswith("replicator: replicator.toml: 1 problem(s)\n  there is no such file")
        assert "Traceback" not in result.err

    def test_every_problem_in_one_message(self, run: Run, file: Path) -> None:
        file.write_text(CONFIG.replace("region", "regoin").replace("1m", "1"))
        result = run("config", "check", "--config", str(file))
        assert result.code == 2
        assert "regoin: unknown key (did you mean 'region'?)" in result.err
        assert "egress.topics.orders.max_segment_age: '1' is not a duration" in result.err

    def test_problems_as_json(self, run: Run, file: Path) -> None:
        file.write_text(CONFIG.replace("bucket", "bukket"))
        result = run("config", "check", "--config", str(file), "--json")
        answer = json.loads(result.out)
        assert result.code == 2
        assert (answer["ok"], answer["between"]) == (False, [])
        assert answer["files"][0]["source"] == str(file)
        assert len(answer["files"][0]["problems"]) == 2
        file.write_text(CONFIG)
        assert json.loads(run("config", "check", "--config", str(file), "--json").out)["ok"] is True

    @pytest.mark.parametrize(
        ("added", "wanted"),
        [
            ('format = "parquett"', "format: no format 'parquett'; installed: parquet"),
            ('format_options.compression = "zstdd"', "format 'parquet': compression 'zstdd'"),
            ("format_options.page_size = 1", "format 'parquet': no option 'page_size'; there are: compression"),
        ],
    )
    def test_a_format_that_no_service_could_make(self, run: Run, file: Path, added: str, wanted: str) -> None:
        file.write_text(f"{added}\n{CONFIG}")
        result = run("config", "check", "--config", str(file))
        assert result.code == 2
        assert f"replicator: {file}: 1 problem(s)\n  {wanted}" in result.err

    def test_properties_unknown_to_the_kafka_client(self, run: Run, file: Path) -> None:
        wrong = '"sasl.mechanisme" = "PLAIN"\n[kafka.consumer]\n"fetch.max.byte" = 1\n"session.timeout.ms" = "soon"\n'
        file.write_text(CONFIG.replace("[s3]", f"{wrong}[s3]").replace("bucket", "bukket"))
        for command in (("config", "check"), ("status",)):
            result = run(*command, "--config", str(file))
            assert result.code == 2
            assert (
                "kafka.\"sasl.mechanisme\": unknown to the Kafka client (did you mean 'sasl.mechanism'?)" in result.err
            )
            assert 'kafka.consumer."fetch.max.byte": unknown to the Kafka client (did you mean' in result.err
            assert 'kafka.consumer."session.timeout.ms": the Kafka client refuses it' in result.err
            assert "s3.bukket: unknown key" in result.err, "with all the others"

    def test_a_variable_that_is_not_set_is_named_once(self, run: Run, file: Path) -> None:
        names = '"sasl.username" = "${NOT_SET}"\n"sasl.passwort" = "${NOT_SET}"\n'
        file.write_text(CONFIG.replace("[s3]", f"{names}[s3]").replace('"b"', '"${NOT_SET}"'))
        result = run("config", "check", "--config", str(file))
        assert result.err.count("NOT_SET") == 1
        assert 'is not set (also for kafka."sasl.passwort", s3.bucket)' in result.err
        assert "must not be empty" not in result.err, "that is not another problem"
        assert 'sasl.passwort": unknown to the Kafka client' in result.err, "this is"

    def test_the_summary_lists_the_sections(self, run: Run, file: Path) -> None:
        file.write_text(
            CONFIG + '[[compaction.jobs]]\nname = "nightly"\n[[compaction.jobs]]\nname = "weekly"\n'
            '[retention.topics."^.*"]\nmax_age = "1d"\n'
        )
        summary = run("config", "check", "--config", str(file)).out
        assert summary.endswith(
            "egress of 2 topic rules, compaction jobs: nightly, weekly, retention of 1 topic rule\n"
        )

    def test_several_files(self, run: Run, file: Path, tmp_path: Path) -> None:
        sqs = '[sqs]\nqueue = "q"\n[[ingress.sources]]\nregion = "{}"\ntopic = "^orders.*"\n'
        other, broken = tmp_path / "other.toml", tmp_path / "broken.toml"
        other.write_text(CONFIG.replace('"here"', '"there"').replace("localhost", "elsewhere") + sqs.format("here"))
        broken.write_text("region = 1")
        result = run("config", "check", str(file), str(other))
        assert (result.code, result.out.splitlines()[-1]) == (0, "2 files: they do not contradict each other")

        file.write_text(CONFIG + sqs.format("there"))
        result = run("config", "check", str(file), str(other))
        *files, note = result.out.splitlines()
        assert (result.code, len(files), note.partition(":")[0]) == (2, 2, "note")
        assert "queue" in result.err
        answer = json.loads(run("config", "check", str(file), str(other), "--json").out)
        assert (answer["ok"], len(answer["files"]), len(answer["between"])) == (False, 2, 1)
        assert len(answer["notes"]) == 1

        result = run("config", "check", str(broken), str(file))
        assert result.code == 2
        assert str(broken) in result.err
        assert str(file) in result.out
        assert "contradict" not in result.out, "what the broken one says is not known"
        assert run("config", "check", str(broken), str(tmp_path / "none.toml")).out == ""
        assert run("config", "check", str(file), "--config", str(other)).code == 2


class TestConfigCommands:
    def test_show_masks_secrets(self, run: Run, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PW", "hunter2")
        file.write_text(CONFIG.replace("[s3]", '"sasl.password" = "${PW}"\n[s3]'))
        for option in ((), ("--json",)):
            shown = run("config", "show", "--config", str(file), *option)
            assert shown.code == 0
            assert "hunter2" not in shown.out
            assert "********" in shown.out

    def test_show_is_a_file(self, run: Run, file: Path) -> None:
        shown = run("config", "show", "--config", str(file)).out
        again = file.with_name("again.toml")
        again.write_text(shown)
        assert run("config", "show", "--config", str(again)).out == shown

    def test_schema(self, run: Run) -> None:
        assert (
            "# a segment is sealed at this many records (whole number, at least 1; reloads)"
            in run("config", "schema").out
        )
        entries = json.loads(run("config", "schema", "--json").out)
        assert {
            "section": "[s3]",
            "name": "prefix",
            "type": "text",
            "required": False,
            "default": '"data"',
        }.items() <= next(entry for entry in entries if (entry["section"], entry["name"]) == ("[s3]", "prefix")).items()

    def test_explain(self, run: Run, file: Path) -> None:
        shown = run("config", "explain", "--config", str(file))
        assert shown.code == 0
        assert "hunter2" not in shown.out
        [one] = json.loads(run("config", "explain", "s3.part_size", "--config", str(file), "--json").out)
        assert (one["value"], one["origin"], one["reloads"]) == ('"16MiB"', "the default", False)
        wrong = run("config", "explain", "s3.part_sizes", "--config", str(file))
        assert wrong.code == 2
        assert "did you mean 's3.part_size'" in wrong.err

    @pytest.mark.parametrize(
        ("name", "explained"),
        [
            ("egress.defaults.max_segment_age", "max_segment_age"),
            ("compaction.defaults.delete_grace", "compaction.jobs.delete_grace"),
        ],
    )
    def test_explain_a_default(self, run: Run, file: Path, name: str, explained: str) -> None:
        """`config check` names such keys."""
        shown = run("config", "explain", name, "--config", str(file))
        assert (shown.code, explained in shown.out) == (0, True), shown.err
        assert run("config", "explain", "egress.defaults.nothing", "--config", str(file)).code == 2

    @pytest.mark.parametrize(
        ("interval", "problem"),
        [("2x", "is not a duration"), ("100ms", "between 500ms and 1h"), ("0.1", "between 500ms"), ("2h", "and 1h")],
    )
    def test_the_interval_of_top(self, run: Run, file: Path, interval: str, problem: str) -> None:
        refused = run("top", "--interval", interval, "--config", str(file))
        assert (refused.code, problem in refused.err) == (2, True), refused.err
        assert [reading_interval(one).total_seconds() for one in ("2s", "500ms", "1m", "0.5", "2")] == [
            2,
            0.5,
            60,
            0.5,
            2,
        ]


class TestOperator:
    """Commands refused without a cluster, before any request is made."""

    @pytest.mark.parametrize(
        "command",
        [
            ("checkpoints", "show"),
            ("checkpoints", "seed", "a/t", "--offset", "1"),
            ("release", "a/t/0"),
            ("skip", "a/t/0", "5", "--reason", "x"),
        ],
    )
    def test_a_file_that_delivers_nothing(self, run: Run, file: Path, command: tuple[str, ...]) -> None:
        result = run(*command, "--config", str(file))
        assert (result.code, "ingress: missing" in result.err) == (2, True)

    def test_a_file_without_flows(self, run: Run, file: Path) -> None:
        file.write_text(CONFIG.split("[egress", maxsplit=1)[0])
        result = run("status", "--config", str(file))
        assert (result.code, "none of [egress], [ingress] and [compaction]" in result.out) == (0, True)

    def test_a_file_that_keeps_everything(self, run: Run, file: Path) -> None:
        result = run("gc", "--config", str(file))
        assert (result.code, "retention: missing; add a [retention.topics" in result.err) == (2, True)


class TestExplain:
    def test_text(self, run: Run, file: Path) -> None:
        result = run("explain", "topic", "orders", "--config", str(file))
        assert (result.code, result.out) == (
            0,
            "egress of here: orders: selected, by its name; a name beats ^orders.*\n",
        )

    def test_json(self, run: Run, file: Path) -> None:
        (answer,) = json.loads(run("explain", "topic", "orders", "--config", str(file), "--json").out)
        assert answer["selected"] is True
        assert answer["settings"]["max_segment_age"] == "1m"

    def test_a_file_without_flows(self, run: Run, file: Path) -> None:
        file.write_text(CONFIG.split("[egress", maxsplit=1)[0])
        result = run("explain", "topic", "orders", "--config", str(file))
        assert (result.code, "neither [egress] nor [ingress]" in result.out) == (0, True)

    @pytest.mark.parametrize(
        ("name", "problem"),
        [("bad topic!", "no topic may be called so"), ("..", "no topic may be called so"), ("^a.*", "name one topic")],
    )
    def test_a_name_that_no_topic_may_have(self, run: Run, file: Path, name: str, problem: str) -> None:
        result = run("explain", "topic", name, "--config", str(file))
        assert (result.code, problem in result.err) == (2, True), result.err

    def test_a_group_has_one_line_for_each_flow(self, run: Run, file: Path) -> None:
        result = run("explain", "group", "billing", "--config", str(file))
        assert (result.code, len(result.out.splitlines())) == (0, 1)


def commands_below(app: typer.Typer) -> dict[str, list[str]]:
    """Names of the commands of the first level, with those of their parameters, or of the commands below them."""
    whole = typer.main.get_command(app)
    assert isinstance(whole, TyperGroup)
    return {
        name: list(one.commands) if isinstance(one, TyperGroup) else [str(each.name) for each in one.params]
        for name, one in whole.commands.items()
    }


def test_the_command_alone_is_the_one_among_all() -> None:
    """`main` reads the parameters of the command that is named, and of no other."""
    whole = commands_below(main.app)
    assert len(whole) > 25
    for name, parameters in whole.items():
        for arguments in ([name], [name, "--help"], ["-h", name, "x"]):
            assert commands_below(main._app_for(arguments)) == {name: parameters}
    for arguments in ([], ["nope", "status"], ["--install-completion", "bash"]):
        assert commands_below(main._app_for(arguments)) == whole
    for options in (["--help"], ["--version"], ["--show-completion"]):
        assert list(commands_below(main._app_for(options))) == list(whole)
