"""A CloudFormation template with the values of its parameters: what AWS would make of it. It knows the functions that
our templates use, and fails on any other."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.docs.markdown import ROOT

FOLDER = ROOT / "infra" / "deploy" / "aws"
TEMPLATES = ("source-region", "target-region", "compaction")
NO_VALUE = object()


class _Loader(yaml.SafeLoader):
    pass


def _function(loader: yaml.SafeLoader, tag: str, node: yaml.Node) -> Any:
    match node:
        case yaml.ScalarNode():
            value: Any = loader.construct_scalar(node)
        case yaml.SequenceNode():
            value = loader.construct_sequence(node, deep=True)
        case _:
            raise ValueError(f"!{tag} of a mapping")
    if tag == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {tag if tag in ("Ref", "Condition") else f"Fn::{tag}": value}


_Loader.add_multi_constructor("!", _function)


def file_of(name: str) -> Path:
    return FOLDER / f"{name}.yaml"


@cache
def read(name: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = yaml.load(file_of(name).read_text(encoding="utf-8"), _Loader)
    return found


@dataclass(frozen=True)
class Template:
    """`region`, `account` and `stack` are those of the stack."""

    name: str
    parameters: Mapping[str, str]
    region: str = "us-east-1"
    account: str = "123456789012"
    stack: str = "stack"
    _conditions: dict[str, bool] = field(default_factory=dict)

    @property
    def tree(self) -> Mapping[str, Any]:
        return read(self.name)

    def resources(self) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        """Logical name, type and properties of each resource whose condition holds."""
        for name, one in self.tree["Resources"].items():
            if "Condition" not in one or self._holds({"Condition": one["Condition"]}):
                yield name, one["Type"], self.value(one["Properties"])

    def refusals(self) -> Sequence[str]:
        """Of the template's rules: with these parameters AWS refuses to make or update the stack."""
        return [
            assertion["AssertDescription"]
            for rule in self.tree.get("Rules", {}).values()
            if self._holds(rule.get("RuleCondition", {"Fn::And": []}))
            for assertion in rule["Assertions"]
            if not self._holds(assertion["Assert"])
        ]

    def of_type(self, wanted: str) -> Mapping[str, Mapping[str, Any]]:
        return {name: properties for name, kind, properties in self.resources() if kind == wanted}

    def properties(self, resource: str) -> Mapping[str, Any]:
        return next(properties for name, _, properties in self.resources() if name == resource)

    def value(self, tree: Any) -> Any:
        match tree:
            case {"Ref": name} if len(tree) == 1:
                return self._ref(name)
            case {"Fn::GetAtt": [resource, attribute]}:
                return self._attribute(resource, attribute)
            case {"Fn::Sub": str(text)}:
                return re.sub(r"\$\{([^}]+)\}", lambda match: str(self._named(match[1])), text)
            case {"Fn::If": [condition, yes, no]}:
                return self.value(yes if self._holds({"Condition": condition}) else no)
            case {"Fn::Join": [glue, parts]}:
                return glue.join(self.value(parts))
            case Mapping():
                if unknown := [key for key in tree if str(key).startswith("Fn::")]:
                    raise ValueError(f"an unknown function: {unknown}")
                values = {key: self.value(value) for key, value in tree.items()}
                return {key: value for key, value in values.items() if value is not NO_VALUE}
            case list():
                return [value for value in map(self.value, tree) if value is not NO_VALUE]
            case _:
                return tree

    def _named(self, name: str) -> Any:
        resource, dot, attribute = name.partition(".")
        return self._attribute(resource, attribute) if dot else self._ref(name)

    def _ref(self, name: str) -> Any:
        pseudo = {
            "AWS::NoValue": NO_VALUE,
            "AWS::Partition": "aws",
            "AWS::Region": self.region,
            "AWS::AccountId": self.account,
            "AWS::StackName": self.stack,
        }
        if name in pseudo:
            return pseudo[name]
        if name in self.tree["Parameters"]:
            parameter = self.tree["Parameters"][name]
            value = self.parameters.get(name, parameter.get("Default"))
            if value is None:
                raise ValueError(f"{self.name}: {name} has no value")
            is_list = parameter["Type"] == "CommaDelimitedList"
            return [part for part in str(value).split(",") if part] if is_list else value
        kind, properties = self._resource(name)
        match kind:
            case "AWS::S3::Bucket":
                return properties["BucketName"]
            case "AWS::SQS::Queue":
                return f"https://sqs.{self.region}.amazonaws.com/{self.account}/{properties['QueueName']}"
        raise ValueError(f"nothing says what a reference to {kind} is")

    def _attribute(self, name: str, attribute: str) -> str:
        kind, properties = self._resource(name)
        match kind, attribute:
            case "AWS::S3::Bucket", "Arn":
                return f"arn:aws:s3:::{properties['BucketName']}"
            case "AWS::SQS::Queue", "Arn":
                return f"arn:aws:sqs:{self.region}:{self.account}:{properties['QueueName']}"
            case "AWS::SQS::Queue", "QueueName":
                return str(properties["QueueName"])
            case "AWS::IAM::Role", "Arn":
                return f"arn:aws:iam::{self.account}:role/{properties['RoleName']}"
        raise ValueError(f"nothing says what {attribute} of {kind} is")

    def _resource(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """With its name alone: another property may refer to it."""
        one = self.tree["Resources"][name]
        names = {key: value for key, value in one["Properties"].items() if key.endswith("Name")}
        return one["Type"], self.value(names)

    def _holds(self, condition: Any) -> bool:
        match condition:
            case {"Condition": name}:
                if name not in self._conditions:
                    self._conditions[name] = self._holds(self.tree["Conditions"][name])
                return self._conditions[name]
            case {"Fn::Not": [one]}:
                return not self._holds(one)
            case {"Fn::And": parts}:
                return all(map(self._holds, parts))
            case {"Fn::Equals": [one, other]}:
                return bool(str(self.value(one)) == str(self.value(other)))
        raise ValueError(f"an unknown condition: {condition}")

    def statements(self, role: str) -> Sequence[Mapping[str, Any]]:
        (policy,) = self.properties(role)["Policies"]
        found: Sequence[Mapping[str, Any]] = policy["PolicyDocument"]["Statement"]
        return found
