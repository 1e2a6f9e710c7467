"""`python -m tests.mutants`: plants mistakes, one at a time, and says which of them no test saw.

What was judged is remembered in .mutants/results.jsonl: a run that was ended goes on, and after a change only what it
concerns is judged again. A mutant that survives has to be named in docs/decisions/0023-mutants.md, with the reason.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from queue import SimpleQueue

from tests.mutants.court import Control, Court, Judged, Memory, digest_of
from tests.mutants.guards import ROOT, Guards, guards_of, modules
from tests.mutants.jury import Jury
from tests.mutants.mutate import Mutant, mutants, sample

SEED, COUNT, MINUTES = 1, 240, 90
CAUGHT = 0.95  # of the sample, at least
FOLDER = ROOT / ".mutants"
EXPLAINED = ROOT / "docs" / "decisions" / "0023-mutants.md"


def drawn(count: int, seed: int) -> list[Mutant]:
    """From each group its share of the mistakes that can be made there; at least a tenth."""
    by_group: dict[str, list[Mutant]] = {}
    for name in modules():
        guards = guards_of(name)
        assert guards is not None
        by_group.setdefault(guards.group, []).extend(mutants(name, (ROOT / name).read_text(encoding="utf-8")))
    total = sum(map(len, by_group.values()))
    found = []
    for group, candidates in sorted(by_group.items()):
        share = max(round(count * len(candidates) / total), count // 10)
        print(f"{group}: {share} of {len(candidates)} mutants", flush=True)
        found += sample(candidates, share, seed)
    return found


def explained() -> Mapping[str, str]:
    """Rows of the decision's table: `id` | place | why no test can see it."""
    rows = re.findall(r"^\| `([0-9a-f]{8})` \|(.*)\|$", EXPLAINED.read_text(encoding="utf-8"), re.MULTILINE)
    return dict(rows)


def judged(courts: Sequence[Court], wanted: Sequence[Mutant], until: float) -> Iterator[tuple[Mutant, Judged]]:
    """All of them without brokers, then with brokers what no test saw. Each court has one at a time."""
    free: SimpleQueue[Court] = SimpleQueue()
    for court in courts:
        free.put(court)

    def judge(count: str, one: Mutant, *, with_brokers: bool) -> Judged | None:
        if time.monotonic() > until:
            return None
        court = free.get()
        try:
            found = court.judge(one, known_guards(one), with_brokers=with_brokers)
        finally:
            free.put(court)
        say(count, one, found)
        return found

    def all_of(some: Sequence[Mutant], word: str, *, with_brokers: bool) -> Iterator[tuple[Mutant, Judged]]:
        counts = [f"{word}{number}/{len(some)}" for number in range(1, len(some) + 1)]
        answers = pool.map(lambda count, one: judge(count, one, with_brokers=with_brokers), counts, some)
        yield from ((one, found) for one, found in zip(some, answers, strict=True) if found is not None)

    with ThreadPoolExecutor(len(courts)) as pool:
        quick = list(all_of(wanted, "", with_brokers=False))
        left = [one for one, found in quick if not found.caught and known_guards(one).broker]
        yield from ((one, found) for one, found in quick if one not in left)
        yield from all_of(left, "with brokers ", with_brokers=True)


def known_guards(one: Mutant) -> Guards:
    guards = guards_of(one.module)
    assert guards is not None
    return guards


def say(count: str, one: Mutant, found: Judged) -> None:
    print(f"{count} {one.id} {'caught' if found.caught else 'SURVIVED'} {found.seconds:.0f} s: {one}", flush=True)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--count", type=int, default=COUNT, help="mutants, about")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="then it ends, and goes on the next time")
    parser.add_argument("--juries", type=int, default=os.cpu_count(), help="side by side, each on a core")
    parser.add_argument("--only", default="", help="modules whose path has this in it; or the id of one mutant")
    parser.add_argument("--list", action="store_true", help="only say what would be planted")
    parser.add_argument("--fresh", action="store_true", help="forget what was judged before")
    given = parser.parse_args(arguments)
    wanted = [one for one in drawn(given.count, given.seed) if given.only in one.module or given.only == one.id]
    if given.list:
        for one in wanted:
            print(one.id, one)
        return 0
    began = time.monotonic()
    results = FOLDER / "results.jsonl"
    if given.fresh:
        results.unlink(missing_ok=True)
    memory = Memory(results)
    memory.load()
    tests_digest = digest_of([*(ROOT / "tests").rglob("*.py")])
    product = [path for package in ("replicator", "egress", "ingress", "compaction", "formats", "infra")
               for path in (ROOT / package).rglob("*.py")]  # fmt: skip
    with ExitStack() as stack:
        juries = [stack.enter_context(Jury(ROOT, FOLDER / f"jury-{n}")) for n in range(given.juries)]
        courts = [Court(jury, memory, tests_digest, digest_of(product)) for jury in juries]
        found = list(judged(courts, wanted, began + given.minutes * 60))
    return tell(found, len(wanted), (time.monotonic() - began) / 60)


def tell(found: Sequence[tuple[Mutant, Judged]], wanted: int, minutes: float) -> int:
    known = explained()
    survivors = [one for one, verdict in found if not verdict.caught]
    by_group: dict[str, Counter[bool]] = {}
    for one, verdict in found:
        by_group.setdefault(known_guards(one).group, Counter())[verdict.caught] += 1
    for group, counts in sorted(by_group.items()):
        print(f"{group}: {counts[True]} of {counts.total()} caught")
    for one in survivors:
        print(f"survived: {one.id} {one}\n    {known.get(one.id, 'NOT EXPLAINED').strip(' |')}")
    caught = len(found) - len(survivors)
    share = caught / len(found) if found else 0.0
    slow = sum(verdict.timed_out for _, verdict in found)
    print(f"{caught} of {len(found)} caught ({share:.1%}), {slow} of them by the time they took; {minutes:.0f} minutes")
    if len(found) < wanted:
        print(f"{wanted - len(found)} were not judged yet: run it again to go on")
    unexplained = [one for one in survivors if one.id not in known]
    return 0 if share >= CAUGHT and not unexplained and len(found) == wanted else 1


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Control as error:
        sys.exit(f"mutants: {error}")
