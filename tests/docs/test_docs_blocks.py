"""What a reader copies from a page works: TOML loads, command lines parse, Python compiles and its imports resolve.

A block says its language. One that is not checked says so in the line before it: `<!-- not run: reason -->`; one that
a reader saves says as what: `<!-- file: name -->`.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from formats.errors import ConfigError
from infra.runtime.metrics import COUNTERS, HISTOGRAMS, TABLE
from replicator import main
from replicator.config import parse
from replicator.config.across import between_files
from replicator.config.flows_form import is_flows, regions_of
from tests.docs import operator_tools
from tests.docs.markdown import ROOT, Block, blocks, code_spans, pages
from tests.infra.deploy.template import read as read_template

ALL = [block for page in pages() for block in blocks(page)]
NOT_RUN = "not run: "
FILE = "file: "  # that a reader saves the block as
WITHOUT_CHECK = frozenset({"text"})  # pictures and output
REPLICATOR = typer.main.get_command(main.app)
CONSOLE, SUBMIT = "$ ", "$SUBMIT"  # the latter: what a page calls its spark-submit
OF_SHELL = (">", "2>", "&")  # with which a command ends
ONE_BUCKET = '\n[s3]\nbucket = "any"\n'


class Wrong(Exception):
    """What a reader would run into."""


def check(block: Block) -> None:
    """Raises Wrong."""
    if not block.language:
        raise Wrong("a block without a language")
    if block.mark.startswith(NOT_RUN):
        if len(block.mark) < len(NOT_RUN) + 5:
            raise Wrong("not run, without a reason")
        if block.language == "sh":
            check_own_commands(block)
        return
    if block.language in WITHOUT_CHECK:
        if any(line.startswith(("$ ", "replicator ")) for line in block.text.splitlines()):
            raise Wrong("a command in a block of text: make it `console`")
        return
    if block.language not in CHECKS:
        raise Wrong(f"no check for the language {block.language!r}")
    CHECKS[block.language](block)


# --- TOML ---


def check_toml(block: Block) -> None:
    load_toml(block.text, name=str(block))


def load_toml(text: str, *, name: str) -> Any:
    """A part of a file is completed by the least that every file needs."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Wrong(str(error)) from error
    if is_flows(given):
        return load_flows(text, name=name)
    whole = ("" if "region" in given else 'region = "any"\n') + text + ("" if "s3" in given else ONE_BUCKET)
    variables = variables_in(text)
    try:
        return parse(whole, source=name, environment=variables)
    except ConfigError as error:
        raise Wrong(str(error)) from error


def variables_in(text: str) -> Mapping[str, str]:
    """Values that its settings take."""
    values = {"PORT": "1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}
    return {name: values.get(name, name) for name in re.findall(r"\$\{([A-Z_]+)\}", text)}


def load_flows(text: str, *, name: str) -> None:
    """Every region of it; together they do not contradict each other."""
    variables = variables_in(text)
    regions = regions_of(tomllib.loads(text))
    try:
        found = [parse(text, source=name, environment=variables, region=region) for region in regions]
    except ConfigError as error:
        raise Wrong(str(error)) from error
    if problems := between_files(found):
        raise Wrong("; ".join(problems))


# --- command lines ---


def check_shell(block: Block) -> None:
    for line in block.text.replace("\\\n", " ").splitlines():
        if line and not line.startswith("#"):
            check_command(line)


def check_own_commands(block: Block) -> None:
    """Of a block that is not run: where it starts the program, by itself or by `$SUBMIT`, with what that takes."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and (words[0] == SUBMIT or Path(words[0]).name == "replicator"):
            parse_arguments(words[1:])


def check_console(block: Block) -> None:
    lines = [line.removeprefix(CONSOLE) for line in block.text.splitlines() if line.startswith(CONSOLE)]
    if not lines:
        raise Wrong("no command in it: make it `text`")
    for line in lines:
        check_command(line)


def check_command(line: str) -> None:
    words = shlex.split(line)
    words = words[: next((n for n, word in enumerate(words) if word in OF_SHELL), len(words))]
    words = list(itertools.dropwhile(re.compile("[A-Z][A-Z0-9_]*=").match, words))  # variables for this command
    match words:
        case ["make", *targets]:
            known = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
            if unknown := [target for target in targets if "=" not in target and target not in known]:
                raise Wrong(f"make has no target {unknown}")
        case ["replicator", *arguments]:
            parse_arguments(arguments)
        case [".venv/bin/python", "-m", module, *arguments]:
            importlib.import_module(module)
            if missing := [name for name in arguments if "/" in name and not (ROOT / name).exists()]:
                raise Wrong(f"there is no {missing}")
        case ["python", name, *_]:
            if f"{FILE}{name}" not in {block.mark for block in ALL}:
                raise Wrong(f"no block is {name}: say so with <!-- {FILE}{name} -->")
        case ["aws", "cloudformation", "deploy", *arguments]:
            check_stack(arguments)
        case ["aws" | "kafka-topics.sh" | "kafka-configs.sh", *_]:
            check_tool(words)
        case ["curl", "-s", address] if address.startswith("http://"):
            pass
        case ["tail", "-n", "1", _] | ["grep", _, _]:
            pass
        case ["eval", substitution] if substitution.startswith("$("):
            check_command(substitution[2:-1])
        case ["kill" | "wait", *jobs] if all(job.startswith("%") for job in jobs):
            pass
        case _:
            raise Wrong(f"nothing checks {words[0]!r}: say why with <!-- {NOT_RUN}… -->")


def check_tool(words: list[str]) -> None:
    """As the stand-ins take it, with which runbooks are played."""
    try:
        operator_tools.check(words)
    except operator_tools.UnknownUse as error:
        raise Wrong(str(error)) from error


def check_stack(arguments: list[str]) -> None:
    """The template exists, and the parameters are its own, with all that it needs."""
    place = arguments.index("--parameter-overrides")
    options = dict(zip(arguments[:place:2], arguments[1:place:2], strict=True))
    if set(options) != {"--region", "--stack-name", "--capabilities", "--template-file"}:
        raise Wrong(f"options of a stack: {sorted(options)}")
    given = dict(one.split("=", 1) for one in arguments[place + 1 :])
    known = read_template(Path(options["--template-file"]).stem)["Parameters"]
    needed = {name for name, one in known.items() if "Default" not in one}
    if set(given) - set(known) or needed - set(given):
        raise Wrong(f"parameters: unknown {sorted(set(given) - set(known))}, missing {sorted(needed - set(given))}")
    for name, value in given.items():
        if not re.fullmatch(known[name].get("AllowedPattern", ".*"), value):
            raise Wrong(f"{name}={value} is not what {known[name]['AllowedPattern']} allows")


def parse_arguments(arguments: list[str]) -> None:
    """As the command line does, down to the last command, which is not called."""
    command: Any = REPLICATOR
    name, rest = "replicator", list(arguments)
    try:
        while True:
            context = command.make_context(name, rest)
            if not hasattr(command, "commands") or (command.invoke_without_command and not context._protected_args):
                return
            name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
    except Exception as error:  # of a library that typer has taken in
        if not hasattr(error, "format_message"):
            raise
        raise Wrong(f"replicator {shlex.join(arguments)}: {error.format_message()}") from error


# --- Python ---


def check_python(block: Block) -> None:
    try:
        tree = ast.parse(block.text)
        compile(tree, str(block), "exec")
    except SyntaxError as error:
        raise Wrong(str(error)) from error
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    resolve(alias.name)
            case ast.ImportFrom(module=str(module), names=names, level=0):
                for alias in names:
                    resolve(module, alias.name)


def resolve(module: str, name: str = "") -> None:
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise Wrong(str(error)) from error
    if name and not hasattr(found, name):
        raise Wrong(f"{module} has no {name}")


# --- the rest ---


def check_json(block: Block) -> None:
    if not block.mark.startswith("example: "):
        raise Wrong(
            "JSON that no encoder wrote: name it in tests/docs/samples.py, and put <!-- example: … --> before it"
        )


def check_promql(block: Block) -> None:
    known = {f"replicator_{name}{'_total' if name in COUNTERS else ''}" for name in TABLE}
    known |= {f"replicator_{name}{series}" for name in HISTOGRAMS for series in ("_bucket", "_count", "_sum")}
    if unknown := set(re.findall(r"replicator_[a-z_]+", block.text)) - known:
        raise Wrong(f"there are no metrics {sorted(unknown)}")


def check_yaml(block: Block) -> None:
    try:
        yaml.safe_load(block.text)
    except yaml.YAMLError as error:
        raise Wrong(f"no YAML: {error}") from error


CHECKS: Mapping[str, Callable[[Block], None]] = {
    "console": check_console,
    "json": check_json,
    "promql": check_promql,
    "python": check_python,
    "sh": check_shell,
    "toml": check_toml,
    "yaml": check_yaml,
}


@pytest.mark.parametrize("block", ALL, ids=map(str, ALL))
def test_a_block_works(block: Block) -> None:
    check(block)


def test_there_are_blocks_of_every_kind() -> None:
    assert {block.language for block in ALL} >= set(CHECKS) | WITHOUT_CHECK


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_commands_in_prose_exist(page: Path) -> None:
    """`replicator …` in a sentence: the commands and each option that is named; placeholders are not parsed."""
    for span in code_spans(page):
        if span.startswith("replicator ") and "=" not in span:
            names_exist(span.split()[1:])


def names_exist(words: list[str]) -> None:
    """Raises Wrong."""
    command: Any = REPLICATOR
    words = [word.strip("[]…") for word in words]
    while words and (below := getattr(command, "commands", {}).get(words[0])) is not None:
        command, words = below, words[1:]
    if words and getattr(command, "commands", None) and re.fullmatch(r"[a-z]+", words[0]):
        raise Wrong(f"{command.name} has no command {words[0]!r}")
    options = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    if unknown := {word for word in words if word.startswith("--")} - options - {"--help"}:
        raise Wrong(f"{command.name} has no {sorted(unknown)}")


def test_the_files_of_two_regions_load_and_agree() -> None:
    files = sorted((ROOT / "infra" / "deploy").glob("*.toml"))
    configs = [load_toml(file.read_text(encoding="utf-8"), name=file.name) for file in files]
    assert len(configs) == 2
    assert between_files(configs) == []


def planted() -> Iterator[tuple[str, str, str]]:
    """Language, planted mistake, and the problem that is reported."""
    yield "", "anything", "without a language"
    yield "toml", 'regoin = "a"', "unknown key"
    yield "toml", "[egress.topics.orders]\nmax_segment_age = 5", "max_segment_age"
    yield "toml", '[clusters.a.s3]\nbucket = "a"\n[flows."a->b"]\ntopics = ["x"]', "there is no cluster 'b'"
    yield "toml", "[egress", "Expected ']'"
    yield "sh", "replicator egres", "No such command"
    yield "sh", "replicator egress --confg a.toml", "No such option"
    yield "sh", "replicator gaps accept us/orders/1", "Missing argument"
    yield "sh", "replicator skip us/orders/1 x --reason y", "valid integer"
    yield "sh", "make demoo", "no target"
    stack = "aws cloudformation deploy --region r --stack-name s --capabilities c --template-file"
    stack += " infra/deploy/aws/compaction.yaml --parameter-overrides"
    yield "sh", f"{stack} BucketName=b", "missing ['ArchiveRegion']"
    yield "sh", f"{stack} Bucket=b", "unknown ['Bucket']"
    yield "sh", "kubectl get pods", "nothing checks 'kubectl'"
    yield "sh", "KAFKA_USER=a replicator statu", "No such command"
    yield "sh", "aws sqs purge-queues --queue-url u", "has no purge-queues"
    yield "sh", "replicator egres > egress.log &", "No such command"
    yield "sh", 'eval "$(replicator local envs)"', "No such command"
    yield "sh", "python nothing.py", "no block is nothing.py"
    yield "sh", "kill 1", "nothing checks 'kill'"
    yield "sh", ".venv/bin/python -m pytest tests/none", "there is no"
    yield "console", "$ replicator statu\nall is well", "No such command"
    yield "console", "output only", "no command in it"
    yield "text", "$ replicator status", "make it `console`"
    yield "python", "from replicator import build_egres", "has no build_egres"
    yield "python", "import replicatr", "No module named"
    yield "python", "with Restore(: pass", "invalid syntax"
    yield "json", "{}", "no encoder wrote"
    yield "promql", "sum(replicator_redy)", "replicator_redy"
    yield "yaml", "a: [", "no YAML"
    yield "cobol", "STOP RUN", "no check for the language"


PLANTED = list(planted())


@pytest.mark.parametrize(("language", "text", "message"), PLANTED, ids=[f"{one[0]}: {one[1][:30]}" for one in PLANTED])
def test_a_planted_mistake_is_found(language: str, text: str, message: str) -> None:
    with pytest.raises(Wrong, match=re.escape(message)):
        check(Block(page="planted.md", line=1, language=language, text=f"{text}\n", mark=""))


@pytest.mark.parametrize("words", ["egres --config FILE", "restore TOPIC… --follo", "config chek"])
def test_a_planted_mistake_in_prose_is_found(words: str) -> None:
    with pytest.raises(Wrong):
        names_exist(words.split())


@pytest.mark.parametrize("line", ["$SUBMIT egres --spark", "/opt/bin/replicator egress --confg a.toml"])
def test_a_planted_mistake_in_what_is_not_run_is_found(line: str) -> None:
    with pytest.raises(Wrong, match="No such"):
        check(Block(page="planted.md", line=1, language="sh", text=f"other\n{line}\n", mark=f"{NOT_RUN}elsewhere"))


def test_an_excuse_needs_a_reason() -> None:
    with pytest.raises(Wrong, match="without a reason"):
        check(Block(page="planted.md", line=1, language="sh", text="rm -r /\n", mark="not run: "))
