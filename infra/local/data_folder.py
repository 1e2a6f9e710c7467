"""The data folder of a new Kafka server, without a Java process to format it: a copy of one that Kafka formatted.

<cache>/kafka-4.3.1.formatted/{meta.properties,bootstrap.checkpoint}      written once per version by StorageTool

Only meta.properties has what differs from server to server: ids of the cluster, the server and the folder.
"""

from __future__ import annotations

import base64
import shutil
import uuid
from typing import TYPE_CHECKING

from infra.local.cache import locked

if TYPE_CHECKING:
    from pathlib import Path

META = "meta.properties"
READ_BY_FORMAT = ("unstable.", "inter.broker.protocol.version", "metadata.log.dir", "controller.quorum.")
"""Properties that decide what is in the folder: one formatted with others is no template."""


def new_id() -> str:
    """A random id as Kafka writes them. None begins with "-", which a command line takes for an option."""
    while (made := base64.urlsafe_b64encode(uuid.uuid4().bytes).decode("ascii").rstrip("=")).startswith("-"):
        pass
    return made


def keep_formatted(data: Path, template: Path) -> None:
    """Make `template` of a folder that was formatted and not used yet. No effect if another process has made it."""
    partial = template.with_name(f"{template.name}.partial")
    with locked(template.with_name(f"{template.name}.lock")):
        if template.exists():
            return
        shutil.rmtree(partial, ignore_errors=True)  # of a killed process
        partial.mkdir()
        for file in data.iterdir():
            if file.is_file():
                shutil.copyfile(file, partial / file.name)
        partial.rename(template)


def copy_formatted(template: Path, data: Path, *, cluster_id: str, node_id: str) -> None:
    """Format `data` like `template`, for another cluster and server. meta.properties comes last: what was interrupted
    before is formatted again."""
    data.mkdir(parents=True, exist_ok=True)
    for file in template.iterdir():
        if file.name != META:
            shutil.copyfile(file, data / file.name)
    own = {"cluster.id": cluster_id, "node.id": node_id, "directory.id": new_id()}
    lines = []
    for line in (template / META).read_text(encoding="utf-8").splitlines():
        key, equals, value = line.partition("=")
        lines.append(f"{key}{equals}{own.get(key, value)}")
    partial = data / f"{META}.partial"
    partial.write_text("\n".join(lines) + "\n", encoding="utf-8")
    partial.rename(data / META)
