"""What a bucket holds, read with pyarrow and an expression of its own: the product cannot hide its mistakes here."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import pyarrow.parquet as pq

from tests.formats.sample_records import Row, rows_of

if TYPE_CHECKING:
    from mypy_boto3_s3.client import S3Client

_RANGE = r"(?P<start>\d{20})-(?P<end>\d{20})"
_SEGMENT = re.compile(rf"data/a/(?P<topic>[a-z]+)/(?P<partition>\d+)/\d+/{_RANGE}")
_GAP = re.compile(rf"data/a/_control/v1/gaps/(?P<topic>[a-z]+)/(?P<partition>\d+)/{_RANGE}")


class Where(NamedTuple):
    topic: str
    partition: int


class Stretch(NamedTuple):
    where: Where
    start: int
    end: int  # inclusive

    @property
    def offsets(self) -> range:
        return range(self.start, self.end + 1)


Truth = Mapping[Where, Mapping[int, Row]]
"""Every record that there ever was, by its offset."""


@dataclass(frozen=True, slots=True)
class Bucket:
    client: S3Client
    name: str

    def judge(self, truth: Truth, *, damaged: Collection[str] = ()) -> list[Stretch]:
        """Every segment, in order of offsets. Each holds just the records of its range, so that every reader has the
        same of it, whichever of two it takes; and what no segment holds, a recorded gap explains. `damaged`: keys of
        segments that cannot be read, whose records no other segment has."""
        found = []
        missing = {where: set(rows) for where, rows in truth.items()}
        for key in self.objects():
            if (stretch := _stretch(_SEGMENT, key)) is None:
                continue
            found.append(stretch)
            missing[stretch.where] -= set(stretch.offsets)
            if key not in damaged:
                rows = truth[stretch.where]
                assert self._rows(key) == [rows[n] for n in stretch.offsets if n in rows], key
        for gap in self.gaps():
            missing[gap.where] -= set(gap.offsets)
        assert not any(missing.values()), f"neither stored nor a recorded gap: {missing}"
        return sorted(found)

    def objects(self) -> Iterator[str]:
        for page in self.client.get_paginator("list_objects_v2").paginate(Bucket=self.name):
            yield from (item["Key"] for item in page.get("Contents", ()))

    def gaps(self) -> list[Stretch]:
        return [gap for key in self.objects() if (gap := _stretch(_GAP, key)) is not None]

    def uploads(self) -> list[str]:
        """Keys of uploads that were not completed."""
        return [one["Key"] for one in self.client.list_multipart_uploads(Bucket=self.name).get("Uploads", ())]

    def _rows(self, key: str) -> list[Row]:
        body = self.client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return rows_of(pq.read_table(io.BytesIO(body)).to_batches())


def _stretch(names: re.Pattern[str], key: str) -> Stretch | None:
    match = names.fullmatch(key)
    if match is None:
        return None
    return Stretch(Where(match["topic"], int(match["partition"])), int(match["start"]), int(match["end"]))
