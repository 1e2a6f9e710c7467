"""List prices of AWS that the bill needs, by region: inputs, since they change and differ.

`PRICES` has defaults for four regions; nothing is fetched. They were written down from memory, and those in `SEEN` were
compared at `COMPARED` with what could be read: AWS's own page of S3 shows its prices to a browser alone. Any of them is
replaced by an option: `--price eu-west-1.put.STANDARD=0.0051`. Amounts are US dollars for the unit in `UNITS`, before
free tiers, volume steps, discounts and taxes. A GB is 2^30 bytes, as AWS bills it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

COMPARED = "2026-11-25"
GB = 2**30
STANDARD, STANDARD_IA, GLACIER_IR = CLASSES = ("STANDARD", "STANDARD_IA", "GLACIER_IR")
MINIMUM_DAYS: Mapping[str, int] = MappingProxyType({STANDARD: 0, STANDARD_IA: 30, GLACIER_IR: 90})
SOURCES: Mapping[str, str] = MappingProxyType(
    {
        "storage": "https://aws.amazon.com/s3/pricing/",
        "put": "https://aws.amazon.com/s3/pricing/",
        "get": "https://aws.amazon.com/s3/pricing/",
        "retrieval": "https://aws.amazon.com/s3/pricing/",
        "transfer": "https://aws.amazon.com/s3/pricing/",
        "time_control": "https://aws.amazon.com/s3/pricing/",
        "queue": "https://aws.amazon.com/sqs/pricing/",
        "kms": "https://aws.amazon.com/kms/pricing/",
        "key": "https://aws.amazon.com/kms/pricing/",
    }
)
UNITS: Mapping[str, str] = MappingProxyType(
    {
        "storage": "a GB and month",
        "put": "1,000 requests of PUT, COPY, POST, LIST",
        "get": "1,000 requests of GET",
        "retrieval": "a GB read",
        "transfer": "a GB to another region",
        "time_control": "a GB replicated with replication time control",
        "queue": "a million requests of SQS",
        "kms": "10,000 requests of KMS",
        "key": "a KMS key and month",
    }
)


@dataclass(frozen=True, slots=True)
class Seen:
    """Where a default was read. `dated`: by its own text."""

    price: str
    region: str
    by: str
    dated: str


_KMS_PAGE = "https://aws.amazon.com/kms/pricing/"
_KMS_GUIDE = "https://www.factualminds.com/blog/aws-kms-pricing-keys-requests-multi-region/"
_SQS_GUIDE = "https://cloudburn.io/blog/amazon-sqs-pricing"
_ACROSS = "https://www.repost.aws/articles/ARjzluyMS8RbeOOK4MGXRG6Q/"
_S3_GUIDE = "https://go-cloud.io/?p=10624"
_REQUESTS = "https://dev.to/sh20raj/aws-s3-pricing-for-beginners-3fc2"
_FRANKFURT = "https://www.demo.wlid.nl/s3-storage-classes.html"
SEEN = (
    Seen("key", "us-east-1", _KMS_PAGE, "no date"),
    Seen("kms", "us-east-1", _KMS_GUIDE, "2026-06"),
    Seen("queue", "us-east-1", _SQS_GUIDE, "2026-03"),
    Seen("transfer", "us-east-1", _ACROSS, "no date"),
    Seen("storage.STANDARD", "us-east-1", _S3_GUIDE, "after 2025-09"),
    Seen("put.STANDARD", "us-east-1", _REQUESTS, "no date"),
    Seen("get.STANDARD", "us-east-1", _REQUESTS, "no date"),
    Seen("get.STANDARD", "eu-central-1", _FRANKFURT, "2021-12"),
)
DIVISORS: Mapping[str, float] = MappingProxyType({"put": 1e3, "get": 1e3, "queue": 1e6, "kms": 1e4})
PER_CLASS = frozenset({"storage", "put", "get", "retrieval"})


@dataclass(frozen=True, slots=True)
class RegionPrices:
    """Of one region. `amounts`: by name, or by name and storage class, `put.STANDARD`."""

    region: str
    amounts: Mapping[str, float]

    def of(self, name: str, storage_class: str = "") -> float:
        """US dollars for one request, GB or month."""
        key = f"{name}.{storage_class}" if name in PER_CLASS else name
        return self.amounts[key] / DIVISORS.get(name, 1)


def _region(storage: Iterable[float], put: Iterable[float], get: Iterable[float]) -> Mapping[str, float]:
    """Of the classes in the order of CLASSES."""
    amounts = {"transfer": 0.02, "time_control": 0.015, "queue": 0.40, "kms": 0.03, "key": 1.00}
    columns = {"storage": storage, "put": put, "get": get, "retrieval": (0.0, 0.01, 0.03)}
    for name, column in columns.items():
        amounts |= {f"{name}.{one}": amount for one, amount in zip(CLASSES, column, strict=True)}
    return amounts


def not_seen(region: str) -> Iterable[str]:
    """Names of the defaults of a region that were compared with nothing."""
    seen = {one.price for one in SEEN if one.region == region}
    return [name for name in PRICES[region] if name not in seen]


_AMERICA = _region((0.023, 0.0125, 0.004), (0.005, 0.01, 0.02), (0.0004, 0.001, 0.01))
PRICES: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "us-east-1": _AMERICA,
        "us-west-2": _AMERICA,
        "eu-west-1": _AMERICA,  # Ireland asks the same for all of these
        "eu-central-1": _region((0.0245, 0.0135, 0.005), (0.0054, 0.01, 0.02), (0.00043, 0.001, 0.01)),
    }
)


def prices_of(region: str, overrides: Mapping[str, float]) -> RegionPrices:
    """`overrides`: by region, name and class: `eu-west-1.put.STANDARD`. Raises ValueError when a price is missing."""
    own = {key.removeprefix(f"{region}."): amount for key, amount in overrides.items() if key.startswith(f"{region}.")}
    known = _AMERICA.keys()
    if unknown := own.keys() - known:
        raise ValueError(f"there is no price {sorted(unknown)}; there are {', '.join(known)}")
    amounts = {**PRICES.get(region, {}), **own}
    if missing := [name for name in known if name not in amounts]:
        raise ValueError(
            f"the price list of {region} is not known: give {', '.join(missing)}, each as --price {region}.NAME=AMOUNT"
        )
    return RegionPrices(region, amounts)
