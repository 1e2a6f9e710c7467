"""A Dockerfile as data: its stages with their instructions, and the script that does the same on this machine."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
DOCKERFILE = ROOT / "infra" / "deploy" / "docker" / "Dockerfile"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`base`: an image, or another stage. `steps`: instruction and arguments."""

    name: str
    base: str
    steps: Sequence[tuple[str, str]]

    def all(self, instruction: str) -> Sequence[str]:
        return [arguments for name, arguments in self.steps if name == instruction]


@dataclass(frozen=True, slots=True)
class Ignored:
    """A `.dockerignore`, as Docker applies it: of the patterns that match a path or a folder above it, the last one
    decides, and `!` takes the path back in."""

    lines: Sequence[str]

    def excludes(self, path: str) -> bool:
        above = [path[: match.start()] for match in re.finditer("/", path)]
        found = False
        for line in self.lines:
            if any(_pattern(line.removeprefix("!")).fullmatch(one) for one in (*above, path)):
                found = not line.startswith("!")
        return found

    def context(self, root: Path) -> Iterator[str]:
        """Paths below `root` of the files that a build gets."""
        taken_back = [line[1:] for line in self.lines if line.startswith("!")]
        for folder, folders, files in os.walk(root):
            here = Path(folder).relative_to(root)
            for name in list(folders):
                path = (here / name).as_posix()
                if self.excludes(path) and not any(one.startswith((f"{path}/", "**")) for one in taken_back):
                    folders.remove(name)
            yield from (path for name in files if not self.excludes(path := (here / name).as_posix()))


def ignored(text: str) -> Ignored:
    return Ignored([line for line in text.splitlines() if line and not line.startswith("#")])


def _pattern(text: str) -> re.Pattern[str]:
    known = {"**/": "(.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile(re.sub(r"\*\*/|\*\*|\*|\?|[^*?]+", lambda one: known.get(one[0], re.escape(one[0])), text))


def stages(text: str) -> Mapping[str, Stage]:
    found: dict[str, Stage] = {}
    steps: list[tuple[str, str]] = []
    for line in text.replace("\\\n", "").splitlines():
        word, _, arguments = line.partition(" ")
        if not line or line.startswith("#"):
            continue
        if (match := re.fullmatch(r"FROM (\S+) AS (\S+)", line)) is not None:
            steps = []
            found[match[2]] = Stage(name=match[2], base=match[1], steps=steps)
        elif word != "ARG":
            steps.append((word, arguments))
    return found


def script(found: Mapping[str, Stage], target: str, *, context: Path, root: Path) -> str:
    """What builds `target` below `root`, from `context`. Only RUN, COPY and WORKDIR do something; what creates users or
    installs packages of the system is left out, since it is not below `root`."""
    lines = ["set -eu"]
    for stage in _lineage(found, target):
        for word, arguments in stage.steps:
            match word:
                case "WORKDIR":
                    lines += [f"mkdir -p {_below(root, arguments)}", f"cd {_below(root, arguments)}"]
                case "COPY" if arguments == ". .":
                    lines.append(f"cp -r {shlex.quote(str(context))}/. .")
                case "COPY" if (file := re.fullmatch(r"--chmod=(\d+) (\S+) (/\S+)", arguments)) is not None:
                    source = shlex.quote(str(context / file[2]))
                    lines.append(f"install -m {file[1]} {source} {_below(root, file[3])}")
                case "RUN" if not re.search(r"\b(apt-get|useradd)\b", arguments):
                    lines.append(re.sub(r"(?<![\w.])/opt/", f"{root}/opt/", arguments))
                case _:
                    pass
    return "\n".join(lines) + "\n"


def _lineage(found: Mapping[str, Stage], target: str) -> Sequence[Stage]:
    """The stages whose files a target has, the first one first."""
    stage = found[target]
    sources = [match[1] for one in stage.all("COPY") if (match := re.match(r"--from=(\S+) ", one))]
    before = [one for name in (stage.base, *sources) if name in found for one in _lineage(found, name)]
    return [*before, stage]


def _below(root: Path, folder: str) -> str:
    return shlex.quote(f"{root}{folder}")
