"""Asks for the keys of [encryption], as far as the roles use them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial

from infra.settings.encryption import EncryptionSettings
from replicator.config import Config
from replicator.doctor.facts import KeyFacts
from replicator.doctor.reading import Asked, Questions
from replicator.rights.iam import uses_of_keys
from replicator.rights.table import GET, PUT, CommandRole
from replicator.services.setups import problem_of_new_objects, problem_of_read_key


@dataclass(frozen=True, slots=True)
class AskedKey:
    name: str
    is_for_new_objects: bool
    asked: Asked[str]

    def facts(self) -> KeyFacts:
        return KeyFacts(name=self.name, is_for_new_objects=self.is_for_new_objects, problem=self.asked.answer())


def ask_for_keys(
    config: Config, roles: Sequence[CommandRole], questions: Questions, opened: ExitStack
) -> Sequence[AskedKey]:
    settings = config.encryption
    uses = uses_of_keys({row for role in roles for row in role.iam})
    if settings is None or not uses:
        return []
    found = []
    for name in [_current(settings), *_others(settings)]:
        is_new = name == _current(settings) and PUT in uses
        question: Callable[[], str]
        if is_new:
            question = partial(problem_of_new_objects, settings, config.region, opened)
        elif GET in uses and name.startswith("arn:"):
            question = partial(problem_of_read_key, settings, name, opened)
        else:
            continue
        found.append(AskedKey(name, is_new, questions.ask(question)))
    return found


def _current(settings: EncryptionSettings) -> str:
    return settings.kms_key_id or "" if settings.key == "kms" else str(settings.key_file)


def _others(settings: EncryptionSettings) -> Sequence[str]:
    earlier = [settings.kms_key_id] if settings.kms_key_id and settings.key != "kms" else []
    return [*earlier, *settings.kms_read_key_ids]
