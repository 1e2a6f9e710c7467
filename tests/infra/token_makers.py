"""Classes for `auth = "tests.infra.token_makers:…"`, in this process or in one that a test starts.

Each leaves a line in the file of $TOKENS_MADE, if there is one, for every token that it makes: process, end, token.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.infra.listeners import unsecured_token

MADE = "TOKENS_MADE"
SECONDS = 15.0  # the client asks every second whether four fifths are over, and logs in again after nine tenths


class ShortLived:
    """Tokens of the principal "app" that live for SECONDS."""

    seconds = SECONDS

    def __init__(self, servers: str) -> None:
        self.servers = servers

    def token(self) -> tuple[str, float]:
        made = unsecured_token("app", self.seconds)
        if path := os.environ.get(MADE):
            with Path(path).open("a", encoding="utf-8") as file:
                file.write(f"{os.getpid()} {made[1]} {made[0]}\n")
        return made


class Failing:
    """Makes one token, and then none."""

    def __init__(self, servers: str) -> None:
        self._left = 1

    def token(self) -> tuple[str, float]:
        if not self._left:
            raise LookupError("the identity provider is away")
        self._left -= 1
        return unsecured_token("app", SECONDS)


class Never:
    def __init__(self, servers: str) -> None:
        pass

    def token(self) -> tuple[str, float]:
        raise LookupError("the identity provider is away")


class NoPair:
    def __init__(self, servers: str) -> None:
        pass

    def token(self) -> str:
        return "secret-token"


class Ended:
    """Its tokens have ended for the broker, and not yet for the client."""

    def __init__(self, servers: str) -> None:
        pass

    def token(self) -> tuple[str, float]:
        text, ends_at = unsecured_token("app", -60)
        return text, ends_at + 60 + SECONDS
