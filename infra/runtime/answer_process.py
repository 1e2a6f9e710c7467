"""One call in a process of its own, which ends with its answer: what it loads and allocates goes with it.

    parent ──(work, pickled, on standard input)──> child ──(answer or error, pickled)──> parent

The child has a session of its own: Ctrl-C of a terminal reaches the parent only. A parent that ends leaves a child that
ends by itself, when it has its answer.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import TypeVar, cast

from formats.errors import ReplicatorError

COMMAND = (sys.executable, "-m", "infra.runtime.answer_process")

T = TypeVar("T")


class NoAnswer(ReplicatorError):
    """The error of the call, or why there is no answer."""


def answer_of(work: Callable[[], T], within: timedelta) -> T:
    """`work` and its answer can be pickled. Raises NoAnswer with the text of a ReplicatorError or OSError of the call,
    for a child that ended otherwise, and for one that took longer than `within`, which is killed."""
    with subprocess.Popen(COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as child:
        try:
            answered, _ = child.communicate(pickle.dumps(work), within.total_seconds())
        except subprocess.TimeoutExpired:
            child.kill()
            raise NoAnswer(f"no answer within {within.total_seconds():g} s: the process was ended") from None
    if child.returncode != 0:
        raise NoAnswer(f"the process that should answer ended with exit code {child.returncode}; its output says why")
    answer, problem = pickle.loads(answered)  # noqa: S301  -- the child's, through a pipe of its own
    if problem:
        raise NoAnswer(problem)
    return cast("T", answer)


def _main() -> None:
    work = pickle.load(sys.stdin.buffer)  # noqa: S301  -- the parent's, through a pipe of its own
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what the call prints is no answer
    answer, problem = None, ""
    try:
        answer = work()
    except (ReplicatorError, OSError) as error:
        problem = str(error) or type(error).__name__
    with out:
        out.write(pickle.dumps((answer, problem)))


if __name__ == "__main__":
    _main()
