"""Packs our own packages into one zip file, for Python processes that do not have them installed."""

from __future__ import annotations

import zipfile
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

PACKAGES = ("replicator", "egress", "ingress", "compaction", "formats", "infra")
KINDS = ("*.py", "*.so")  # compiled objects, too
DISTRIBUTION = "kafka-segment-replicator"


def pack(target: Path) -> Path:
    """Write the zip file `target`. On `sys.path`, it provides the packages and the entry points of the formats."""
    installed = distribution(DISTRIBUTION)
    about = f"{DISTRIBUTION.replace('-', '_')}-{installed.version}.dist-info"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as packed:
        for package in PACKAGES:
            spec = find_spec(package)
            if spec is None or spec.origin is None:
                raise ModuleNotFoundError(f"no package {package}: the installation is incomplete")
            folder = Path(spec.origin).parent
            for file in sorted(file for kind in KINDS for file in folder.rglob(kind)):
                packed.write(file, Path(package) / file.relative_to(folder))
        # generated, not copied: an installation as egg-info has it in a file of another name
        packed.writestr(
            f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: {installed.version}\n"
        )
        packed.writestr(f"{about}/entry_points.txt", installed.read_text("entry_points.txt") or "")
    return target
