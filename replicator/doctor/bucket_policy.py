"""Which statements of a bucket's policy deny a request that a role makes. Pure.

    Deny, and principal, action, resource and every condition fit  ──>  the request is refused, whatever a role allows

What cannot be judged from here (an address, a VPC endpoint, a tag, an organisation) counts as not denied: the doctor's
own requests show it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

TLS = "aws:securetransport"
ENCRYPTION = "s3:x-amz-server-side-encryption"
ENCRYPTION_KEY = f"{ENCRYPTION}-aws-kms-key-id"
PRINCIPAL, ACCOUNT = "aws:principalarn", "aws:principalaccount"
PUTS = "s3:putobject"
_PARTITION = re.compile(r"^arn:aws[a-z-]*:")


class Cause(Enum):
    """What about the request the statement denies."""

    NO_TLS = "without TLS"
    NOT_ENCRYPTED = "with the encryption that it asks for, or without any"
    ANY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """`arn`: of the user or role, as STS says it; empty: not known, so that only statements about everyone are judged.
    `key_id`: KMS key that a put names; `sse`: the encryption that it asks for."""

    arn: str = ""
    is_tls: bool = True
    sse: str | None = None
    key_id: str | None = None

    @property
    def account(self) -> str:
        return self.arn.split(":")[4] if self.arn.count(":") >= 5 else ""

    @property
    def role(self) -> str:
        """The name of the assumed role; empty for a user."""
        kind, _, rest = self.arn.rpartition(":")[2].partition("/")
        return rest.partition("/")[0] if kind == "assumed-role" else ""

    def arns(self) -> Collection[str]:
        """Names of the caller in a policy. STS leaves out the path of a role's ARN."""
        own = [self.arn, f"arn:aws:iam::{self.account}:role/{self.role}"] if self.role else [self.arn]
        return [_plain(one) for one in own if one]

    def context(self, action: str) -> Mapping[str, str | None]:
        """Keys of conditions, in lower case, with the values of a request; None: the request has none."""
        puts = action.lower() == PUTS
        known: dict[str, str | None] = {
            TLS: "true" if self.is_tls else "false",
            ENCRYPTION: self.sse if puts else None,
            ENCRYPTION_KEY: self.key_id if puts else None,
        }
        return known | ({ACCOUNT: self.account} if self.arn else {})


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """`statement`: its Sid, or its number."""

    statement: str
    action: str
    resource: str
    cause: Cause


def denials(policy: str, needed: Sequence[tuple[str, str]], caller: Caller) -> Iterator[Denial]:
    """The first denial of each statement, in order. `needed`: actions, and ARNs that may end with `*`. Raises
    ValueError for a text that is no JSON."""
    statements = listed(json.loads(policy or "{}").get("Statement"))
    for number, one in enumerate(statements, start=1):
        if one.get("Effect") != "Deny" or not _is_about(one, caller):
            continue
        for action, resource in needed:
            if _matches(one, "Action", action.lower()) and _reaches(one, resource):
                causes = _causes(one.get("Condition") or {}, action, caller)
                if causes is not None:
                    name = str(one.get("Sid") or f"number {number}")
                    yield Denial(statement=name, action=action, resource=resource, cause=_main(causes))
                    break


def listed(value: Any) -> list[Any]:
    return [] if value is None else list(value) if isinstance(value, list) else [value]


def _is_about(statement: Mapping[str, Any], caller: Caller) -> bool:
    if "NotPrincipal" in statement:
        return bool(caller.arn) and not _names(statement["NotPrincipal"], caller)
    return _names(statement.get("Principal"), caller)


def _names(principal: Any, caller: Caller) -> bool:
    if principal == "*":
        return True
    given = listed(principal.get("AWS")) if isinstance(principal, Mapping) else []
    accounts = {caller.account, f"arn:aws:iam::{caller.account}:root"} if caller.account else set()
    return any(one == "*" or one in accounts or _is_caller(str(one), caller) for one in given)


def _is_caller(pattern: str, caller: Caller) -> bool:
    """By the whole ARN, or of a role by its name below any path."""
    pattern = _plain(pattern)
    if any(fnmatchcase(arn, pattern) for arn in caller.arns()):
        return True
    if not caller.role or ":role/" not in pattern:
        return False
    account = pattern.split(":")[4]
    return fnmatchcase(caller.account, account or "*") and fnmatchcase(caller.role, pattern.rpartition("/")[2])


def _matches(statement: Mapping[str, Any], name: str, action: str) -> bool:
    if f"Not{name}" in statement:
        return not any(fnmatchcase(action, str(one).lower()) for one in listed(statement[f"Not{name}"]))
    return any(fnmatchcase(action, str(one).lower()) for one in listed(statement.get(name)))


def _reaches(statement: Mapping[str, Any], resource: str) -> bool:
    """Whether a resource of the statement has something in common with `resource`."""
    if "NotResource" in statement:
        return not any(fnmatchcase(resource, _plain(one)) for one in listed(statement["NotResource"]))
    return any(_overlap(_plain(one), resource) for one in listed(statement.get("Resource")))


def _plain(arn: Any) -> str:
    """As in the partition that the table of rights writes."""
    return _PARTITION.sub("arn:aws:", str(arn))


def _overlap(pattern: str, resource: str) -> bool:
    if not resource.endswith("*"):
        return fnmatchcase(resource, pattern)
    fixed, head = resource[:-1], pattern.partition("*")[0].partition("?")[0]
    return fnmatchcase(resource, pattern) or (head.startswith(fixed) or (fixed.startswith(head) and head != pattern))


def _causes(conditions: Mapping[str, Any], action: str, caller: Caller) -> set[str] | None:
    """The keys by which the statement holds for the request; None: it does not hold, or that is not known."""
    context = caller.context(action)
    found: set[str] = set()
    for operator, keys in conditions.items():
        for key, wanted in keys.items():
            values = [str(one) for one in listed(wanted)]
            name = key.lower()
            if name == PRINCIPAL and caller.arn:
                holds = _of_principal(operator, values, caller)
            elif name in context:
                holds = _holds(operator, context[name], values)
            else:
                holds = None
            if not holds:
                return None
            found.add(name)
    return found


def _of_principal(operator: str, values: Sequence[str], caller: Caller) -> bool | None:
    operator = operator.removesuffix("IfExists")
    is_caller = any(_is_caller(one, caller) for one in values)
    if operator in ("ArnEquals", "ArnLike", "StringEquals", "StringLike"):
        return is_caller
    if operator in ("ArnNotEquals", "ArnNotLike", "StringNotEquals", "StringNotLike"):
        return not is_caller
    return None


def _holds(operator: str, value: str | None, wanted: Sequence[str]) -> bool | None:
    """None: an operator that is not known here."""
    if operator == "Null":
        return (value is None) == (wanted == ["true"])
    optional = operator.endswith("IfExists")
    match operator.removesuffix("IfExists"):
        case "Bool" | "StringEquals" | "StringLike" | "StringEqualsIgnoreCase" | "ArnEquals" | "ArnLike":
            return optional if value is None else _is_one_of(value, wanted)
        case "StringNotEquals" | "StringNotLike" | "StringNotEqualsIgnoreCase" | "ArnNotEquals" | "ArnNotLike":
            return value is None or not _is_one_of(value, wanted)
        case _:
            return None


def _is_one_of(value: str, wanted: Sequence[str]) -> bool:
    return any(fnmatchcase(value.lower(), one.lower()) for one in wanted)


def _main(causes: Collection[str]) -> Cause:
    if TLS in causes:
        return Cause.NO_TLS
    return Cause.NOT_ENCRYPTED if {ENCRYPTION, ENCRYPTION_KEY} & set(causes) else Cause.ANY
