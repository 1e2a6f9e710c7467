"""One topic on its way from region a to region b: produced, awaited, judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from infra.runtime.lifecycle import Deadline
from tests.processes import judge
from tests.processes.harness import PATIENCE, A, B, Site
from tests.processes.traffic import KEEPS_EVERYTHING, Draft, Traffic, create_topic, last_words, produce_all

CREATE_TIME = 1
RUN = 500  # the sites' batch_size: what one crash may repeat
CATCHES_UP = timedelta(seconds=3)  # a new reader; a broker that is frozen lets it wait


class Flow:
    """Closes its reader with the `with` statement; processes are the site's."""

    def __init__(
        self,
        site: Site,
        word: str = "t",
        partitions: int = 6,
        config: Mapping[str, str] = KEEPS_EVERYTHING,
        *,
        isolation: str = "read_committed",
    ) -> None:
        """Creates the source topic. `isolation`: how the target is read."""
        self.site, self.partitions = site, partitions
        self._isolation = isolation
        self.topic = f"{site.name}.{word}"
        self.target = f"{self.topic}.ingress"
        self._reader: judge.Reader | None = None
        create_topic(site.bootstrap(A), self.topic, partitions, config)

    def __enter__(self) -> Flow:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.close()

    # --- producing

    def traffic(self, *, seed: int, most: int = 300, transactions: bool = True, keyed: bool = False) -> Traffic:
        return Traffic(
            self.site.bootstrap(A),
            self.topic,
            self.partitions,
            seed=seed,
            most=most,
            transactions=transactions,
            keyed=keyed,
        )

    def produce(self, drafts: Sequence[Draft]) -> Sequence[Draft]:
        """These, and last words behind them, which are the answer."""
        words = last_words(self.partitions)
        produce_all(self.site.bootstrap(A), self.topic, [*drafts, *words])
        return words

    # --- waiting

    def delivered(self) -> int:
        """Records seen in the target so far."""
        if self._reader is None:
            if not self._shows_target():
                return 0
            self._reader = judge.Reader(self.site.bootstrap(B), self.target, self.partitions, isolation=self._isolation)
            catching_up = Deadline(CATCHES_UP)
            while not (self._reader.at_end or catching_up.expired):  # else what it did not fetch yet seems undelivered
                self._reader.read()
        self._reader.read()
        return self._reader.count()

    def reread(self) -> None:
        """The target has more partitions now: its reader begins anew."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def _shows_target(self) -> bool:
        """A broker that is away shows nothing, and the one that asks may be the one to bring it back: no long wait."""
        admin = AdminClient({"bootstrap.servers": self.site.bootstrap(B), "log_level": 0})
        try:
            return self.target in admin.list_topics(timeout=1.0).topics
        except KafkaException:
            return False

    def wait_for_more(self, count: int = 1, timeout: timedelta = PATIENCE) -> None:
        """Until so many more records were delivered."""
        wanted = self.delivered() + count
        self.site.wait(f"{wanted} records in {self.target}", lambda: self.delivered() >= wanted, timeout)

    def wait_for(self, words: Sequence[Draft], timeout: timedelta = PATIENCE) -> None:
        """Until every partition's last record is in the target."""

        self.site.wait(f"the last words of {self.topic} in {self.target}", lambda: self.has_arrived(words), timeout)

    def has_arrived(self, words: Sequence[Draft]) -> bool:
        """Whether these are the last records of the target."""
        self.delivered()
        if self._reader is None:
            return False
        last = [self._reader.last(word.partition) for word in words]
        return all(one is not None and one.value == word.value for one, word in zip(last, words, strict=True))

    def wait_for_archive(self, timeout: timedelta = PATIENCE) -> None:
        """Until the archive has everything that the source has now."""
        ends = self.ends()
        self.site.wait(f"an archive of {self.topic}", lambda: self.site.archived(self.topic, ends), timeout)

    # --- judging

    def ends(self) -> Mapping[int, int]:
        """Of the source now: next offsets."""
        return judge.ends(self.site.bootstrap(A), self.topic, self.partitions)

    def source(self) -> Mapping[int, judge.Log]:
        return judge.read_topic(self.site.bootstrap(A), self.topic, self.partitions)

    def read_target(self) -> Mapping[int, judge.Log]:
        """As it is; aborted records too, if the target is read so."""
        return judge.read_topic(self.site.bootstrap(B), self.target, self.partitions, isolation=self._isolation)

    def judge_target(self, *, rewinds: int, run: int = RUN) -> Mapping[int, judge.Verdict]:
        """Raises Guilty."""
        source, target = self.source(), self.read_target()
        return {
            p: _named(
                f"{self.target}/{p}",
                lambda p=p: judge.judge_target(source[p].records, target[p].records, rewinds=rewinds, run=run),  # type: ignore[misc]
            )
            for p in source
        }

    def judge_compacted(self, drafts: Sequence[Draft], *, rewinds: int, run: int = RUN) -> Mapping[int, judge.Verdict]:
        """As `judge_target`, of a compacted source: `drafts` is all that was written to it, in order, and what log
        compaction removed of it may be missing. Raises Guilty."""
        source, target = self.source(), self.read_target()
        verdicts = {}
        for p, log in source.items():
            written = [contents(each) for each in drafts if each.partition == p]
            gone = judge.compacted(written, log.records)
            verdicts[p] = _named(
                f"{self.target}/{p}",
                lambda p=p, written=written, gone=gone: judge.judge_target(  # type: ignore[misc]
                    written, target[p].records, rewinds=rewinds, run=run, gone=gone
                ),
            )
        return verdicts

    def judge_archive(self, *, starts: Mapping[int, int] | None = None) -> None:
        """Raises Guilty. `starts`: where the archive of a partition begins, if not at 0."""
        covered = self.site.ranges(self.topic)
        for p, end in self.ends().items():
            start = (starts or {}).get(p, 0)
            if end > start:
                _named(
                    f"archive of {self.topic}/{p}",
                    lambda p=p, end=end, start=start: judge.judge_archive(  # type: ignore[misc]
                        covered.get(p, ()), start=start, next_offset=end
                    ),
                )

    def overlaps(self) -> Mapping[int, object]:
        """Neighbouring segments that cover an offset twice, by partition."""
        found = {p: judge.overlaps(covered) for p, covered in self.site.ranges(self.topic).items()}
        return {p: each for p, each in found.items() if each}


def contents(each: Draft) -> judge.Content:
    """What a reader finds of it."""
    return judge.Content(each.key, each.value, tuple(each.headers), (CREATE_TIME, each.timestamp_ms))


T = TypeVar("T")


def _named(what: str, call: Callable[[], T]) -> T:
    """What `call` answers; its charge says of what."""
    try:
        return call()
    except judge.Guilty as error:
        raise judge.Guilty(error.charge, f"{what}: {error}") from None
