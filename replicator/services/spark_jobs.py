"""Runs the jobs of a command on Spark, which starts with the first one and ends with `close`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from infra.runtime.java import find_java
from infra.runtime.lifecycle import Closing
from infra.runtime.progress import Progress, no_progress
from infra.runtime.spark_submit import is_submitted

if TYPE_CHECKING:
    from infra.spark.driver import SparkSettings
    from infra.spark.runner import ItemT, OutcomeT, SparkRunner, SparkTask


class SparkJobs(Closing):
    """A context manager, for one thread."""

    def __init__(self, settings: SparkSettings | None) -> None:
        """`settings`: None for work that does not run on Spark; then `run` is not called."""
        self.settings = settings
        self.runner: SparkRunner | None = None  # from the first job on

    def need_java(self) -> None:
        """For a command that writes before its first job. Raises JavaMissing, if there is to be one and none could
        run."""
        if self.settings is not None and not is_submitted():
            find_java()

    def run(
        self,
        task: SparkTask[ItemT, OutcomeT],
        items: Iterable[ItemT],
        *,
        parallelism: int | None = None,
        progress: Progress = no_progress,
    ) -> Sequence[OutcomeT]:
        """The outcomes of `items`, in their order. Raises what `SparkRunner.run` raises, and what `progress` does."""
        from infra.spark.runner import SparkRunner, run_tasks  # noqa: PLC0415 -- takes 30 MB, not needed without Spark

        self.runner = self.runner or SparkRunner(self.settings)
        return run_tasks(self.runner, task, items, parallelism=parallelism, progress=progress)

    def close(self) -> None:
        """End Spark. May be called again, and a job may follow."""
        if self.runner is not None:
            self.runner.close()
