"""`replicator rights`: what each command needs in Kafka, S3 and SQS, with the names of the configuration."""

# ruff: noqa: PLC0415  -- each command imports what it needs, so that `--help` answers at once

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from replicator.terminal.output import AsJson, ConfigFile, load_config, print_json, print_text

if TYPE_CHECKING:
    from replicator.rights.kafka import Acl
    from replicator.rights.table import CommandRole

PRINCIPAL = "User:replicator-{role}"


def rights(  # noqa: PLR0917
    roles: Annotated[list[str] | None, typer.Argument(metavar="[ROLE]...", help="Default: all of them.")] = None,
    config: ConfigFile = None,
    acls: Annotated[
        bool, typer.Option("--kafka-acls", help="Print command lines of kafka-acls.sh, ready to run.")
    ] = False,
    iam: Annotated[bool, typer.Option("--iam", help="Print the IAM policy of one role, ready to apply.")] = False,
    optional: Annotated[
        bool, typer.Option("--optional", help="Also rights without which something is only left out.")
    ] = False,
    principal: Annotated[
        str, typer.Option("--principal", metavar="NAME", help="Kafka principal; {role} stands for the role.")
    ] = PRINCIPAL,
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="NAME", help="Topic that restore writes, or PREFIX*; may be repeated."),
    ] = None,
    account: Annotated[
        str, typer.Option("--account", metavar="ID", help="AWS account of a queue that is given by its name.")
    ] = "*",
    as_json: AsJson = False,
) -> None:
    """Print the rights that each command needs.

    They have the names of the configuration, and no right is among them that the command does not use. Asks no cluster
    and no bucket.
    """
    from replicator.rights.config import policies_of
    from replicator.rights.kafka import Name
    from replicator.rights.kafka import acls as acls_of
    from replicator.rights.table import ROLES

    known = {role.name: role for role in ROLES}
    if unknown := [name for name in roles or () if name not in known]:
        raise typer.BadParameter(f"there is no role {', '.join(unknown)}; there are {', '.join(known)}")
    if iam and len(roles or ()) != 1:
        raise typer.BadParameter(
            "--iam prints the policy of one role: name it, such as `replicator rights egress --iam`"
        )
    if sum((acls, iam, as_json)) > 1:
        raise typer.BadParameter("--kafka-acls, --iam and --json exclude each other")
    settings = load_config(config)
    named = [Name(one.removesuffix("*"), is_prefix=one.endswith("*")) for one in topics or ()]
    found = {
        role: (acls_of(role, settings, named, optional=optional), policies_of(role, settings, account))
        for role in (known[name] for name in roles or known)
    }
    if as_json:
        print_json({role.name: _json(role, *parts, principal) for role, parts in found.items()})
    elif acls:
        for role, (allowed, _) in found.items():
            _print_lines(role, allowed, principal)
    elif iam:
        ((_, policies),) = found.values()
        _print_policy(policies)
    else:
        for role, (allowed, policies) in found.items():
            _print(role, allowed, policies)


def _principal(template: str, role: CommandRole) -> str:
    return template.replace("{role}", role.name)


def _json(
    role: CommandRole, allowed: Sequence[Acl], policies: Mapping[str, Mapping[str, Any]], principal: str
) -> Mapping[str, Any]:
    from replicator.rights.kafka import as_json

    return {
        "principal": _principal(principal, role),
        "kafka": [as_json(acl) for acl in allowed],
        "iam": dict(policies),
    }


def _print_lines(role: CommandRole, allowed: Sequence[Acl], principal: str) -> None:
    from replicator.rights.kafka import kafka_acls_line

    for acl in allowed:
        for remark in _remarks(acl):
            print_text(f"# {remark}")
        print_text(kafka_acls_line(acl, _principal(principal, role)))


def _print_policy(policies: Mapping[str, Mapping[str, Any]]) -> None:
    """One document: a role may have rights in two buckets."""
    whole = [statement for document in policies.values() for statement in document["Statement"]]
    print_json({"Version": "2012-10-17", "Statement": whole})


def _print(role: CommandRole, allowed: Sequence[Acl], policies: Mapping[str, Mapping[str, Any]]) -> None:
    print_text(role.name)
    for acl in allowed:
        kind = f"{acl.kind} prefixed" if acl.name.is_prefix else acl.kind
        print_text(f"  kafka  {kind} {acl.name.text}: {', '.join(acl.operations)}")
        for remark in _remarks(acl):
            print_text(f"         ({remark})")
    if not allowed:
        print_text("  kafka  none")
    for where, document in policies.items():
        for statement in document["Statement"]:
            print_text(f"  {where}  {', '.join(statement['Action'])}")
            for resource in statement["Resource"]:
                print_text(f"         on {resource}")
            for operator, condition in statement.get("Condition", {}).items():
                for name, value in condition.items():
                    print_text(f"         where {name} is {value} ({operator})")


def _remarks(acl: Acl) -> Iterator[str]:
    if acl.without:
        yield f"optional; without it is left out: {acl.without}"
    if acl.name.broader:
        yield f"more than {acl.name.broader}, which an ACL cannot say: name the topics or groups to allow less"
