"""The program of one child of a local parent: `python -m infra.runtime.workers.child`.

Its work arrives pickled on standard input, from the parent that started it: credentials are in no argument and in no
file. It exits with 0 when the parent ordered its end, else with 1.
"""

from __future__ import annotations

import logging
import pickle
import sys
from typing import cast

from formats.errors import ReplicatorError
from infra.runtime.log_fields import ERROR
from infra.runtime.process_exit import exit_process
from infra.runtime.workers.attempt import WorkerJob

log = logging.getLogger(__name__)


def main() -> int:
    try:
        work, task, attempt = pickle.load(sys.stdin.buffer)  # noqa: S301  -- the parent's, through a pipe of its own
        cast("WorkerJob", work).run(task, attempt)
    except ReplicatorError as error:
        log.error("child_failed", extra={ERROR: str(error)})
        return 1
    except Exception:
        log.exception("child_failed")
        return 1
    return 0


if __name__ == "__main__":
    exit_process(main())
