from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from datetime import timedelta
from io import BytesIO
from random import Random
from typing import BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats.errors import (
    BrokerUnavailable,
    QueueUnavailable,
    SegmentExists,
    SegmentNotFound,
    StoreRefused,
    StoreUnavailable,
    TransientError,
)
from infra.contracts.storage import ObjectInfo, Thaw
from infra.runtime.lifecycle import Stop
from infra.runtime.metrics import CounterName, NoMetrics
from infra.runtime.retry import PROBLEM_WITHIN, Retries, RetryPolicy
from infra.storage.aws import ATTEMPTS, READ_TIMEOUT
from infra.storage.memory_and_folder import MemoryObjectStore
from infra.storage.metered import MeteredObjectStore
from infra.storage.retrying import RetryingColdStore, RetryingObjectStore
from tests.contracts.store import KEY, StoreContract, get, put

THREE = RetryPolicy(attempts=3)
ONCE = RetryPolicy(attempts=3, raises_refusals=True)


class FastStop(Stop):
    """Does not wait, but records the requested times; sets itself at the `stop_at`-th wait."""

    def __init__(self, *, stop_at: int = 0) -> None:
        super().__init__()
        self.waits: list[timedelta] = []
        self._stop_at = stop_at

    def wait(self, timeout: timedelta) -> bool:
        self.waits.append(timeout)
        if len(self.waits) == self._stop_at:
            self.set()
        return self.is_set()


class Failing:
    """Raises the given errors one after the other, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> str:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return "answer"


class FlakyStore(MemoryObjectStore):
    """A listing fails after `runs[0]` objects, the next one after `runs[1]`, …; other calls fail `failures` times."""

    def __init__(self, *, runs: Sequence[int] = (), failures: int = 0) -> None:
        super().__init__()
        self.runs = list(runs)
        self.failures = failures

    def list(self, prefix: str, *, start_after: str = "", limit: int | None = None) -> Iterator[ObjectInfo]:
        run = self.runs.pop(0) if self.runs else None
        for number, info in enumerate(super().list(prefix, start_after=start_after, limit=limit)):
            if number == run:
                raise StoreUnavailable("as the test says")
            yield info

    def folders(self, prefix: str) -> Sequence[str]:
        self._fail()
        return super().folders(prefix)

    def put_new(self, key: str, body: BinaryIO, size_bytes: int) -> None:
        body.read(1)  # an attempt leaves the body at any position
        self._fail()
        super().put_new(key, body, size_bytes)

    def open(self, key: str, *, tail_bytes: int | None = None) -> BinaryIO:
        self._fail()
        return super().open(key, tail_bytes=tail_bytes)

    def stat(self, key: str) -> ObjectInfo | None:
        self._fail()
        return super().stat(key)

    def delete_many(self, keys: Collection[str]) -> None:
        self._fail()
        super().delete_many(keys)

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("as the test says")


class Counts(NoMetrics):
    def __init__(self) -> None:
        self.seen: Counter[tuple[str, str]] = Counter()

    def count(self, name: CounterName, value: float = 1, **labels: str) -> None:
        self.seen[name, labels["operation"]] += int(value)


# --- one call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [StoreUnavailable("x"), QueueUnavailable("x"), BrokerUnavailable("x")])
def test_transient_errors_are_retried(error: TransientError) -> None:
    fn = Failing(error, error)
    assert Retries(stop=FastStop()).call("open", fn) == "answer"
    assert fn.calls == 3


@pytest.mark.parametrize("error", [SegmentExists("k"), SegmentNotFound("k"), ValueError("x"), OSError("x"), KeyError()])
def test_other_errors_are_not_retried(error: Exception) -> None:
    fn = Failing(error)
    stop = FastStop()
    with pytest.raises(type(error)) as raised:
        Retries(stop=stop).call("open", fn)
    assert raised.value is error
    assert (fn.calls, stop.waits) == (1, [])


def test_the_last_error_is_raised() -> None:
    errors = [StoreUnavailable(str(number)) for number in range(4)]
    fn = Failing(*errors)
    stop = FastStop()
    with pytest.raises(StoreUnavailable) as raised:
        Retries(stop=stop, policy=THREE).call("open", fn)
    assert raised.value is errors[2]
    assert len(stop.waits) == 2


def test_a_service_retries_until_an_operator_has_fixed_the_cause() -> None:
    fn = Failing(StoreRefused("x"), StoreRefused("x"))
    assert Retries(stop=FastStop()).call("list", fn) == "answer"
    assert fn.calls == 3


def test_finite_work_does_not_wait_for_an_operator() -> None:
    stop, fn = FastStop(), Failing(StoreUnavailable("may pass"), StoreRefused("does not"))
    with pytest.raises(StoreRefused, match="does not"):
        Retries(stop=stop, policy=ONCE).call("list", fn)
    assert (fn.calls, len(stop.waits)) == (2, 1)


def test_a_limit_of_one_attempt_does_not_retry() -> None:
    stop = FastStop()
    with pytest.raises(StoreUnavailable):
        Retries(stop=stop, policy=RetryPolicy(attempts=1)).call("open", Failing(StoreUnavailable("x")))
    assert stop.waits == []


def test_a_stop_during_the_wait_ends_it_without_another_attempt() -> None:
    errors = [StoreUnavailable(str(number)) for number in range(9)]
    fn = Failing(*errors)
    with pytest.raises(StoreUnavailable) as raised:
        Retries(stop=FastStop(stop_at=2)).call("open", fn)
    assert raised.value is errors[1]
    assert fn.calls == 2


def test_after_a_stop_each_call_has_one_attempt() -> None:
    stop = Stop()
    stop.set()
    retries = Retries(stop=stop)
    assert retries.call("open", Failing()) == "answer"
    fn = Failing(StoreUnavailable("x"))
    with pytest.raises(StoreUnavailable):
        retries.call("open", fn)
    assert fn.calls == 1


def test_repeated_failures_and_their_end_are_reported() -> None:
    problems: list[tuple[str, str | None]] = []
    retries = Retries(stop=FastStop(), on_problem=lambda operation, reason: problems.append((operation, reason)))
    retries.call("put", Failing(*[StoreUnavailable("down")] * 4))
    assert problems == []
    retries.call("put", Failing(*[StoreUnavailable("down")] * 6))
    assert problems == [("put", "down"), ("put", "down"), ("put", None)]


@pytest.mark.parametrize("answer", [SegmentExists("stored, and the answer was lost"), SegmentNotFound("merged")])
def test_an_answer_that_is_no_success_ends_a_reported_failure_too(answer: Exception) -> None:
    problems: list[str | None] = []
    retries = Retries(stop=FastStop(), on_problem=lambda _, reason: problems.append(reason))
    with pytest.raises(type(answer)):
        retries.call("put", Failing(*[StoreUnavailable("down")] * 5, answer))
    assert problems == ["down", None]


def test_a_call_that_is_given_up_is_still_reported() -> None:
    problems: list[str | None] = []
    policy = RetryPolicy(attempts=6)
    retries = Retries(stop=FastStop(), policy=policy, on_problem=lambda _, reason: problems.append(reason))
    with pytest.raises(StoreUnavailable):
        retries.call("put", Failing(*[StoreUnavailable("down")] * 9))
    assert problems == ["down"]


def test_a_request_that_hangs_is_reported_before_others_have_hung() -> None:
    """The time of its attempts counts, too: here, any time is long."""
    problems: list[str | None] = []
    policy = RetryPolicy(problem_within=timedelta())
    retries = Retries(stop=FastStop(), policy=policy, on_problem=lambda _, reason: problems.append(reason))
    retries.call("put", Failing(StoreUnavailable("hung")))
    assert problems == ["hung", None]


def test_a_hanging_client_gives_up_when_it_is_to_be_reported() -> None:
    hangs = READ_TIMEOUT * ATTEMPTS
    assert PROBLEM_WITHIN <= hangs <= timedelta(seconds=60)


def test_without_a_limit_retries_continue() -> None:
    fn = Failing(*[StoreUnavailable("x")] * 500)
    assert Retries(stop=FastStop()).call("open", fn) == "answer"


def test_each_retry_is_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    stop = FastStop()
    Retries(stop=stop).call("put_new", Failing(StoreUnavailable("one"), StoreUnavailable("two")))
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert [(r.message, vars(r)["operation"], vars(r)["attempt"], vars(r)["error"]) for r in caplog.records] == [
        ("retry", "put_new", 1, "one"),
        ("retry", "put_new", 2, "two"),
    ]
    assert [vars(r)["wait_ms"] for r in caplog.records] == [
        round(wait / timedelta(milliseconds=1)) for wait in stop.waits
    ]


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(0, 10_000), st.integers())
def test_waits_double_up_to_the_maximum(failed: int, initial_ms: int, more_ms: int, seed: int) -> None:
    policy = RetryPolicy(
        initial=timedelta(milliseconds=initial_ms), maximum=timedelta(milliseconds=initial_ms + more_ms)
    )
    longest = min(policy.initial * 2 ** min(failed - 1, 20), policy.maximum)
    slack = timedelta(microseconds=1)
    assert longest / 2 - slack <= policy.wait(failed, Random(seed)) <= longest + slack


@pytest.mark.parametrize(
    "make",
    [
        lambda: RetryPolicy(initial=timedelta()),
        lambda: RetryPolicy(initial=timedelta(seconds=2), maximum=timedelta(seconds=1)),
        lambda: RetryPolicy(attempts=0),
    ],
)
def test_invalid_policies_are_rejected(make: Callable[[], RetryPolicy]) -> None:
    with pytest.raises(ValueError, match="want"):
        make()


# --- the store -------------------------------------------------------------------------------------------------------


class TestRetryingStore(StoreContract):
    @pytest.fixture
    def store(self) -> RetryingObjectStore:
        self._inner = FlakyStore(runs=[0, 1, 2, 0], failures=2)
        return RetryingObjectStore(self._inner, stop=FastStop(), policy=RetryPolicy(attempts=4))

    def peek(self, key: str) -> bytes | None:
        self._inner.failures = 0
        return get(self._inner, key) if self._inner.stat(key) else None


def test_every_call_of_a_store_is_retried() -> None:
    inner = FlakyStore()
    store = RetryingObjectStore(inner, stop=FastStop(), policy=THREE)

    def flaky() -> RetryingObjectStore:
        inner.failures = 2
        return store

    put(flaky(), KEY, b"one")
    assert get(flaky(), KEY) == b"one"
    assert flaky().stat(KEY) is not None
    flaky().delete_many([KEY])
    assert flaky().stat(KEY) is None
    inner.failures = 3
    with pytest.raises(StoreUnavailable):
        store.stat(KEY)


@given(st.integers(0, 12), st.lists(st.integers(0, 4), max_size=12))
def test_a_listing_continues_after_the_last_key(count: int, runs: list[int]) -> None:
    inner = FlakyStore(runs=runs)
    keys = [f"k/{number:02d}" for number in range(count)]
    for key in keys:
        put(inner, key)
    store = RetryingObjectStore(inner, stop=FastStop())
    assert [info.key for info in store.list("k/", start_after="k/02")] == keys[3:]


def test_a_listing_without_progress_is_given_up() -> None:
    inner = FlakyStore(runs=[2, 0, 0, 0])
    for number in range(5):
        put(inner, f"k/{number}")
    found: list[str] = []
    with pytest.raises(StoreUnavailable):
        found.extend(info.key for info in RetryingObjectStore(inner, stop=FastStop(), policy=THREE).list("k/"))
    inner.runs = [2, 0, 0]
    listing = RetryingObjectStore(inner, stop=FastStop(), policy=THREE).list("k/")
    assert [info.key for info in listing] == [f"k/{number}" for number in range(5)]


def test_a_listing_ends_with_the_stop() -> None:
    inner = FlakyStore(runs=[2])
    for number in range(5):
        put(inner, f"k/{number}")
    stop = Stop()
    listing = RetryingObjectStore(inner, stop=stop).list("k/")
    assert [next(listing).key, next(listing).key] == ["k/0", "k/1"]
    stop.set()
    with pytest.raises(StoreUnavailable):
        next(listing)


# --- the cold store --------------------------------------------------------------------------------------------------


class FlakyColdStore:
    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, list[str]()

    def state(self, key: str) -> Thaw:
        self._fail()
        return Thaw.FROZEN

    def thaw(self, key: str, days: int) -> None:
        self._fail()
        self.asked.append(f"{key} {days}")

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise StoreUnavailable("as the test says")


def test_calls_of_a_cold_store_are_retried() -> None:
    inner = FlakyColdStore(2)
    cold = RetryingColdStore(inner, stop=FastStop(), policy=THREE)
    assert cold.state("k") is Thaw.FROZEN
    inner.failures = 2
    cold.thaw("k", 7)
    assert inner.asked == ["k 7"]
    inner.failures = 3
    with pytest.raises(StoreUnavailable):
        cold.state("k")


# --- counting --------------------------------------------------------------------------------------------------------


class TestMeteredStore(StoreContract):
    @pytest.fixture
    def store(self) -> MeteredObjectStore:
        self._inner = MemoryObjectStore()
        return MeteredObjectStore(self._inner, NoMetrics())

    def peek(self, key: str) -> bytes | None:
        return get(self._inner, key) if self._inner.stat(key) else None


def test_every_attempt_counts_and_answers_are_no_errors() -> None:
    counts = Counts()
    inner = FlakyStore(runs=[1], failures=2)
    store = RetryingObjectStore(MeteredObjectStore(inner, counts), stop=FastStop(), policy=THREE)
    put(store, "a")
    put(store, "b")
    with pytest.raises(SegmentExists):
        put(store, "a")
    with pytest.raises(SegmentNotFound):
        store.open("c")
    assert store.stat("c") is None
    assert len(list(store.list(""))) == 2
    inner.failures = 1
    assert store.folders("") == []
    store.delete_many(["a"])
    assert counts.seen == {
        ("store_requests", "put_new"): 5,
        ("store_errors", "put_new"): 2,
        ("store_requests", "open"): 1,
        ("store_requests", "stat"): 1,
        ("store_requests", "list"): 4,
        ("store_errors", "list"): 2,
        ("store_requests", "delete_many"): 1,
    }


def test_a_listing_left_unfinished_counts_once() -> None:
    counts = Counts()
    inner = MemoryObjectStore()
    for number in range(3):
        inner.put_new(str(number), BytesIO(b""), 0)
    listing = MeteredObjectStore(inner, counts).list("")
    next(listing)
    del listing
    assert counts.seen == {("store_requests", "list"): 1}
