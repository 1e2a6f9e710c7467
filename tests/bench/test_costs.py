"""The bill of a deployment: its arithmetic by hand, its inputs, and the page that shows it."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from bench.costs import Bill, Choices, alternatives
from bench.deployment import FOOTER_BYTES, MONTH_SECONDS, Deployment
from bench.prices import COMPARED, GB, PRICES, SEEN, SOURCES, UNITS, not_seen, prices_of
from bench.sizing import main
from infra.settings.units import MIB

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cost.md"
# one partition, a segment of 4 MB stored every 300 s and a bit, for 30 days
SMALL = Deployment(partitions=1, topics=1, bytes_per_second=40_000, record_bytes=1_000, stored_ratio=3.0, processes=1)
SEGMENTS = MONTH_SECONDS / (300 + 1 / 40)


def quantities(bill: Bill) -> dict[str, float]:
    return {f"{line.where}: {line.what}": line.quantity for line in bill.lines()}


def test_each_quantity_by_hand_without_compaction() -> None:
    found = quantities(Bill(deployment=SMALL, choices=Choices(compaction=None)))
    raw = 40_000 / 3 * MONTH_SECONDS
    stored = (raw + SEGMENTS * FOOTER_BYTES) / GB
    control = MONTH_SECONDS / 5 + MONTH_SECONDS / 30 + 30
    assert found == pytest.approx(
        {
            "source: storage of level 0": stored,
            "target: storage of level 0": stored,
            "source: PUT of level 0": SEGMENTS,
            "source: PUT of control objects": control,
            "source: LIST of egress": 240 * 24 * 30,
            "between: transfer of level 0": stored,
            "between: PUT of copies of level 0 and control objects": SEGMENTS + control,
            "target: GET of ingress": SEGMENTS * (1 + (raw / SEGMENTS + FOOTER_BYTES) / (8 * MIB)),
            "target: LIST of ingress' timer": 4 * MONTH_SECONDS / 300,
            "target: SQS: notifications sent": SEGMENTS,
            "target: SQS: receive and delete": 2 * SEGMENTS / 10 + MONTH_SECONDS / 20,
        }
    )


def test_compaction_stores_deleted_versions_and_sends_every_byte_twice() -> None:
    merged = quantities(Bill(deployment=SMALL, choices=Choices(compaction=timedelta(days=1), noncurrent_days=30)))
    plain = quantities(Bill(deployment=SMALL, choices=Choices(compaction=None)))
    level_0 = plain["source: storage of level 0"]
    assert merged["source: storage of level 0, deleted versions"] == pytest.approx(level_0)
    assert merged["source: storage of level 0"] == pytest.approx(level_0 * (12 + 2) / 24 / 30)  # half a day, 1 h, 1 h
    assert merged["source: storage of level 1, STANDARD"] == pytest.approx(level_0, rel=0.01)
    assert merged["between: transfer of level 1"] == pytest.approx(merged["between: transfer of level 0"], rel=0.01)
    assert merged["source: compaction: GET of level 0"] == merged["target: gc --covered: GET of level 0"]


def test_a_storage_class_has_its_own_requests_its_retrieval_and_its_minimum() -> None:
    short = Bill(deployment=Deployment(retention_days=10), choices=Choices(merged_class="GLACIER_IR"))
    lines = {f"{line.where}: {line.what}": line for line in short.lines()}
    stored = lines["source: storage of level 1, GLACIER_IR"]
    day = lines["between: transfer of level 1"].quantity / 30
    assert stored.quantity == pytest.approx(90 * day)  # paid for 90 days, whatever is deleted before
    assert lines["source: compaction: retrieval of level 1"].price == 0.03
    assert lines["source: compaction: PUT of level 1"].price == 0.02 / 1_000


def test_kms_asks_for_every_object_or_for_one_in_a_hundred() -> None:
    bill = Bill(deployment=SMALL)
    each, few = (quantities(bill.but(kms=kms)) for kms in ("object", "bucket-key"))
    assert "source: KMS: requests" not in quantities(bill)
    for where in ("source", "target"):
        assert few[f"{where}: KMS: requests"] == pytest.approx(each[f"{where}: KMS: requests"] / 100)
    written = each["between: PUT of copies of level 0 and control objects"] + 30  # and a merged segment each day
    assert each["target: KMS: requests"] == pytest.approx(
        written
        + each["target: GET of ingress"]
        + each["target: gc --covered: GET of level 0"]
        + each["target: gc --covered: GET of level 1"]
    )


def test_the_sum_is_that_of_its_lines_and_each_choice_moves_it() -> None:
    bill = Bill(deployment=Deployment())
    assert bill.dollars == pytest.approx(sum(line.quantity * line.price for line in bill.lines()))
    found = dict(alternatives(bill))
    assert found.pop("as above") is bill
    assert all(other.dollars != pytest.approx(bill.dollars, rel=1e-6) for other in found.values())


class TestPrices:
    def test_each_has_a_unit_and_a_source(self) -> None:
        for amounts in PRICES.values():
            assert {name.partition(".")[0] for name in amounts} == UNITS.keys() == SOURCES.keys()

    def test_an_option_replaces_one(self) -> None:
        prices = prices_of("eu-west-1", {"eu-west-1.put.STANDARD": 5.0, "us-east-1.queue": 7.0})
        assert prices.of("put", "STANDARD") == 0.005
        assert prices.of("queue") == 0.40 / 1e6

    def test_a_region_without_a_list_is_whole_once_its_prices_are_given(self) -> None:
        given = {f"ap-south-1.{name}": 1.0 for name in PRICES["us-east-1"]}
        assert prices_of("ap-south-1", given).of("storage", "STANDARD") == 1.0
        with pytest.raises(
            ValueError, match=r"ap-south-1 is not known: give transfer,.*--price ap-south-1.NAME=AMOUNT"
        ):
            prices_of("ap-south-1", {})

    @pytest.mark.parametrize(
        ("option", "expected"),
        [
            ("eu-west-1.putt.STANDARD=1", "there is no price ['putt.STANDARD']"),
            ("eu-west-1.queue=cheap", "REGION.NAME=US-DOLLARS"),
            ("eu-west-1.queue", "REGION.NAME=US-DOLLARS"),
            ("eu-north-1.queue=1", "it begins with a region of the bill"),
        ],
    )
    def test_a_wrong_option_is_refused(self, option: str, expected: str, capsys: pytest.CaptureFixture[str]) -> None:
        with pytest.raises(SystemExit) as caught:
            main(["--cost", "--price", option])
        assert caught.value.code == 2
        assert expected in capsys.readouterr().err


def test_the_page_shows_what_the_script_prints(capsys: pytest.CaptureFixture[str]) -> None:
    page = PAGE.read_text(encoding="utf-8")
    found = re.search(r"python -m bench\.sizing (?P<options>--cost[^\n]*)\n```\n\n(?P<rest>.*)\Z", page, re.S)
    assert found is not None
    main(found["options"].split())
    tables = capsys.readouterr().out.strip().split("\n\n")
    assert len(tables) == 3
    shown = re.findall(r"(?:^\|.*\n)+", found["rest"], re.M)
    assert [one.strip() for one in shown[:3]] == tables


def test_the_page_says_which_prices_were_compared_with_what() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert COMPARED in page
    assert all(source in page for source in SOURCES.values())
    for one in SEEN:
        amount = f"{PRICES[one.region][one.price]:g}"
        assert f"| {one.price} | {one.region} | {amount} | <{one.by}> | {one.dated} |" in page
    assert set(not_seen("us-east-1")) == {
        *(f"{name}.{kind}" for name in ("storage", "put", "get") for kind in ("STANDARD_IA", "GLACIER_IR")),
        *(f"retrieval.{kind}" for kind in ("STANDARD", "STANDARD_IA", "GLACIER_IR")),
        "time_control",
    }
    assert len(list(not_seen("eu-west-1"))) == len(PRICES["eu-west-1"])
