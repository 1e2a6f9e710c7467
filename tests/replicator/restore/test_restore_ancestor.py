"""The archive that the Go ancestor wrote, through `replicator restore` and `replicator verify` on a real cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.formats.ancestor_samples import FILES, REGION, TOPIC, after_its_losses, object_key, segment_of, truth
from tests.replicator.restore.place import Commands, Place, expected

pytestmark = pytest.mark.integration

LEVEL_0 = [file for file in FILES if segment_of(file).level == 0]


@pytest.mark.parametrize("files", [LEVEL_0, FILES], ids=["streamed", "with-the-merged-one"])
def test_an_archive_of_the_ancestor_is_restored_and_verified(
    place: Place, commands: Commands, files: Sequence[Path]
) -> None:
    for file in files:
        place.client.put_object(Bucket=place.bucket, Key=object_key(file), Body=file.read_bytes())
    name = place.unique("restored")
    selection = [TOPIC, "--archive-region", REGION, "--rename", f"{TOPIC}={name}"]
    code, text = commands.run("restore", *selection)
    assert (code, "--partition-count" in text) == (1, True), text  # not in its footers, and not guessed
    assert name not in place.cluster.topics()
    code, text = commands.run("restore", *selection, "--partition-count", "1")
    assert code == 0, text
    assert place.restored(name, 0) == expected([after_its_losses(record) for record in truth()])
    code, text = commands.run("verify", *selection, "--target", str(place.file))
    assert (code, f"{len(truth()):,} records equal" in text) == (0, True), text
