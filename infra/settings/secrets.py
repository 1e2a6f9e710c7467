"""Secrets and the environment: which settings are secret, how they are masked, and how `${NAME}` is substituted."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

MASK = "********"

Path = tuple[str | int, ...]
ProblemSink = Callable[[Path, str], None]

# matches dotted and underscored names, but not "sasl.oauthbearer.token.endpoint.url"
_SECRET = re.compile(
    r"secret|passw(?:or)?d|passphrase|(?:^|[._])token$|private\.key|key\.pem$|keystore\.key$|user\.info$", re.IGNORECASE
)
_NOT_SECRET = re.compile(r"(?:location|path|url|file)$", re.IGNORECASE)

_REFERENCE = re.compile(r"\$?\$\{([^}]*)\}?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


CREDENTIALS_IN_URL = "must not contain credentials: give them as settings of their own"
_USER_INFO = re.compile(r"://[^/\s?#]*@")


def has_credentials(text: str) -> bool:
    """Whether it is a URL with a user or a password in front of the host."""
    return _USER_INFO.search(text) is not None


def without_credentials(text: str) -> str:
    """The text with those masked, for printing."""
    return _USER_INFO.sub(f"://{MASK}@", text)


def is_secret(name: str) -> bool:
    """Whether a setting or a client property of this name holds a secret."""
    return _SECRET.search(name) is not None and _NOT_SECRET.search(name) is None


def masked(table: Mapping[str, str]) -> dict[str, str]:
    """The table with secrets masked, for printing."""
    return {name: MASK if is_secret(name) and value else value for name, value in table.items()}


def substitute(
    tree: object,
    environment: Mapping[str, str],
    report: ProblemSink,
    unset: ProblemSink,
    *,
    literal_secrets: bool,
    path: Path = (),
) -> object:
    """`tree` with `${NAME}` replaced in its strings; `$${` stands for `${`. Calls `report` for problems and `unset` for
    names that are not in the environment; values are passed to neither.

    Without `literal_secrets`, a secret must be a reference: files get copied, committed and mailed.
    """

    def below(value: object, key: str | int) -> object:
        return substitute(value, environment, report, unset, literal_secrets=literal_secrets, path=(*path, key))

    match tree:
        case Mapping():
            return {key: below(value, str(key)) for key, value in tree.items()}
        case list() | tuple():
            return [below(value, n) for n, value in enumerate(tree)]
        case str():
            if not literal_secrets and tree and _names_secret(path) and not _is_reference(tree):
                report(
                    path, f'is a secret and must not be in the file; write "${{{_variable_for(path)}}}" and set that'
                )
            return _replaced(tree, environment, report, unset, path)
        case _:
            return tree


def references(text: str) -> list[str]:
    """The names of the variables that `substitute` would replace."""
    return [match[1] for match in _REFERENCE.finditer(text) if not match[0].startswith("$$")]


def escape(text: str) -> str:
    """Inverse of `substitute` for one text without references."""
    return text.replace("${", "$${")


def _names_secret(path: Path) -> bool:
    return any(is_secret(part) for part in (str(path[-1]), ".".join(map(str, path[1:])))) if path else False


def _is_reference(text: str) -> bool:
    match = _REFERENCE.fullmatch(text)
    return match is not None and not text.startswith("$$")


def _variable_for(path: Path) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "_", str(path[-1])).strip("_").upper() or "SECRET"


def _replaced(text: str, environment: Mapping[str, str], report: ProblemSink, unset: ProblemSink, path: Path) -> str:
    def value(match: re.Match[str]) -> str:
        whole, name = match[0], match[1]
        if whole.startswith("$$"):
            return whole[1:]
        if not whole.endswith("}") or not _VARIABLE.fullmatch(name):
            report(path, "a reference to the environment is written ${NAME}; a plain ${ is written $${")
        elif name not in environment:
            unset(path, name)
        else:
            return environment[name]
        return ""

    return _REFERENCE.sub(value, text)
