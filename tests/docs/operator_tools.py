"""Stand-ins for Kafka's and AWS' own command-line tools, which are no packages of ours: each makes the same call to the
broker or to the service as the tool does, and refuses every option that it does not know.

    python -m tests.docs.operator_tools aws sqs get-queue-attributes --queue-url URL --attribute-names All
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

import botocore.session
from botocore import xform_name
from botocore.model import OperationModel
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # its stubs hide what it documents
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.docs.markdown import ROOT

ASK_SECONDS = 20.0
ITERATIONS = 4096


class UnknownUse(Exception):
    """The real tool may know it; this one does not."""


# --- aws -------------------------------------------------------------------------------------------------------------


def aws_call(words: Sequence[str]) -> tuple[str, OperationModel, Mapping[str, Any]]:
    """Service, operation and its parameters, checked by the service's own model. Raises UnknownUse."""
    if len(words) < 2:
        raise UnknownUse(f"aws {' '.join(words)}: SERVICE OPERATION, and options with their values")
    service = "s3" if words[0] == "s3api" else words[0]
    model = botocore.session.get_session().get_service_model(service)
    names = {xform_name(name, "-"): name for name in model.operation_names}
    if words[1] not in names:
        raise UnknownUse(f"aws {words[0]} has no {words[1]}")
    operation = model.operation_model(names[words[1]])
    shape = operation.input_shape
    members = shape.members if shape is not None else {}
    options = {f"--{xform_name(name, '-')}": name for name in members}
    given: dict[str, Any] = {}
    for option, values in _options(words[2:]):
        if option not in options:
            raise UnknownUse(f"aws {words[0]} {words[1]} has no {option}")
        kind = members[options[option]].type_name
        if len(values) != 1 and kind != "list":
            raise UnknownUse(f"aws {words[0]} {words[1]}: {option} takes one value, not {values}")
        given[options[option]] = _value(kind, values)
    if missing := [name for name in (shape.required_members if shape is not None else ()) if name not in given]:
        raise UnknownUse(f"aws {words[0]} {words[1]} needs {missing}")
    return service, operation, given


def _options(words: Sequence[str]) -> Iterator[tuple[str, Sequence[str]]]:
    """Each with the values behind it."""
    starts = [n for n, word in enumerate(words) if word.startswith("--")]
    for start, end in itertools.pairwise([*starts, len(words)]):
        yield words[start], words[start + 1 : end]
    if words and not words[0].startswith("--"):
        raise UnknownUse(f"a value without an option: {words[0]}")


def _value(kind: str, values: Sequence[str]) -> Any:
    match kind:
        case "list":
            return json.loads(values[0]) if values[0].startswith("[") else list(values)
        case "structure" | "map":
            return json.loads(values[0])
        case "integer" | "long":
            return int(values[0])
        case _:
            return values[0]


def aws(words: Sequence[str]) -> None:
    service, operation, given = aws_call(words)
    client = botocore.session.get_session().create_client(service)
    try:
        answer = getattr(client, xform_name(operation.name))(**given)
    finally:
        client.close()
    answer.pop("ResponseMetadata")
    if answer:
        print(json.dumps(answer, indent=4, default=str))


# --- kafka -----------------------------------------------------------------------------------------------------------


def kafka_parser(tool: str) -> argparse.ArgumentParser:
    """The part of the tool's options that pages use."""
    parser = argparse.ArgumentParser(prog=tool, exit_on_error=False, allow_abbrev=False)
    add = parser.add_argument
    add("--bootstrap-server", required=True)
    add("--alter", action="store_true", required=True)
    if tool == "kafka-topics.sh":
        add("--topic", required=True)
        add("--partitions", type=int, required=True)
    else:
        add("--entity-type", choices=("topics", "users"), required=True)
        add("--entity-name", required=True)
        add("--add-config", required=True)
    return parser


def kafka_options(tool: str, words: Sequence[str]) -> argparse.Namespace:
    """Raises UnknownUse."""
    try:
        return kafka_parser(tool).parse_args(words)
    except (argparse.ArgumentError, SystemExit) as error:
        raise UnknownUse(f"{tool} {' '.join(words)}: {error}") from None


def kafka(tool: str, words: Sequence[str]) -> None:
    options = kafka_options(tool, words)
    admin = AdminClient({"bootstrap.servers": options.bootstrap_server, "log_level": 0})
    done: Mapping[Any, Future[Any]]
    if tool == "kafka-topics.sh":
        done = admin.create_partitions([NewPartitions(options.topic, options.partitions)])
    elif options.entity_type == "topics":
        name, _, value = options.add_config.partition("=")
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, options.entity_name, incremental_configs=[entry])
        done = admin.incremental_alter_configs([resource])
    else:
        mechanism, _, rest = options.add_config.partition("=[password=")
        credential = ScramCredentialInfo(ScramMechanism[mechanism.replace("-", "_")], ITERATIONS)
        change = UserScramCredentialUpsertion(options.entity_name, credential, rest.removesuffix("]").encode())
        done = admin.alter_user_scram_credentials([change])
    for future in done.values():
        future.result(ASK_SECONDS)
    print(f"Completed updating {options.entity_name if 'entity_name' in options else options.topic}.")


KAFKA_TOOLS = ("kafka-topics.sh", "kafka-configs.sh")
TOOLS: Mapping[str, Callable[[Sequence[str]], None]] = {
    "aws": aws,
    **{tool: partial(kafka, tool) for tool in KAFKA_TOOLS},
}


def check(words: Sequence[str]) -> None:
    """Whether the command line is one that these tools carry out. Raises UnknownUse."""
    if words[0] == "aws":
        aws_call(words[1:])
    else:
        kafka_options(words[0], words[1:])


def install(folder: Path) -> None:
    """As commands, for the PATH of a shell."""
    folder.mkdir(parents=True, exist_ok=True)
    for tool in TOOLS:
        script = folder / tool
        run = f'cd "{ROOT}" && exec "{sys.executable}" -m tests.docs.operator_tools {tool} "$@"'
        script.write_text(f"#!/bin/sh\n{run}\n", encoding="utf-8")
        script.chmod(0o755)


if __name__ == "__main__":
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    TOOLS[sys.argv[1]](sys.argv[2:])
