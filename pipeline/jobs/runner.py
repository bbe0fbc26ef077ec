"""Running a function over pieces of work: on Spark, or in this process.

The driver sends pickled pieces to the tasks, and the tasks return pickled results. Both must be small. An error that
another attempt would meet again (a PipelineError, an invalid option, a refusal) ends the job at once with its own text;
Spark retries a task after any other failure.
"""

from __future__ import annotations

import pickle
import re
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from magnetar.client.errors import ClientError
from magnetar.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from magnetar.pipeline.progress import Progress

T = TypeVar("T")
R = TypeVar("R")

_LASTING = (PipelineError, ClientError, ValueError)
_POLL_S: Final = 0.2
_ERROR_LINE: Final = re.compile(r"[\w.]*(Error|Exception|Interrupt)\b")
"""The last line of a Python traceback."""


class TaskFailedError(PipelineError):
    """A task failed in all of Spark's attempts: its worker was lost, or an error was temporary. The text is Spark's."""

    def __init__(self, text: str) -> None:
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        reason = next((line for line in reversed(lines) if _ERROR_LINE.match(line)), lines[0] if lines else "no reason")
        super().__init__(f"a task failed: {reason[:500]}")
        self.text = text


class Runner(Protocol):
    """Runs pieces of work.

    cores: how many run at once, for planning.
    """

    cores: int

    def map(
        self, function: Callable[[T], R], pieces: Sequence[T], progress: Progress, weights: Sequence[float]
    ) -> list[R]:
        """The results in the order of the pieces.

        Args:    function: importable (of a module) or a closure that pickles; it may run again after a failure.
                 weights: how much work each piece is; `progress.begin` has been called with their sum.
        Raises: errors of the function.
        """


class LocalRunner:
    """One piece after the other in this process: needs no Spark."""

    cores = 1

    def map(
        self, function: Callable[[T], R], pieces: Sequence[T], progress: Progress, weights: Sequence[float]
    ) -> list[R]:
        results = []
        for piece, weight in zip(pieces, weights, strict=True):
            results.append(function(piece))
            progress.advance(weight)
        return results


class SparkRunner:
    """One task per piece on a Spark session. A classic session runs an RDD: that costs the JVM a third of the processor
    time of a query, and each task gets only its piece. Spark Connect has no RDDs, and shows progress only at the end.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        context = getattr(session, "_sc", None)
        self._context = context
        self.cores = int(context.defaultParallelism) if context is not None else 8

    def map(
        self, function: Callable[[T], R], pieces: Sequence[T], progress: Progress, weights: Sequence[float]
    ) -> list[R]:
        if not pieces:
            return []
        try:
            with _Watch(self._context, progress, sum(weights)):
                collected = (self._by_query if self._context is None else self._by_rdd)(function, pieces)
        except KeyboardInterrupt:
            raise
        except Exception as error:  # Spark has a class of its own for each way that a task can end
            raise TaskFailedError(str(error)) from error
        results = []
        for failed, pickled in collected:
            found = pickle.loads(pickled)  # noqa: S301 - made by this job's task
            if failed:
                raise found
            results.append(found)
        return results

    def _by_rdd(self, function: Callable[[T], R], pieces: Sequence[T]) -> list[tuple[bool, bytes]]:
        context = self._context
        assert context is not None, "a classic session has a context"
        found: list[tuple[bool, bytes]] = (
            context.parallelize(pieces, len(pieces)).map(lambda piece: run_piece(function, piece)).collect()
        )
        return found

    def _by_query(self, function: Callable[[T], R], pieces: Sequence[T]) -> list[tuple[bool, bytes]]:
        plan = self.session.range(0, len(pieces), 1, len(pieces))
        rows = plan.mapInArrow(_task(function, list(pieces)), "id long, result binary, failed boolean").collect()
        return [(row["failed"], bytes(row["result"])) for row in sorted(rows, key=lambda row: row["id"])]


def _task(function: Callable[[T], R], pieces: list[T]) -> Callable[[Any], Iterator[Any]]:
    """The function of a Python worker: the ids of its pieces in, their pickled results out."""

    def run(batches: Any) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - in the worker

        for batch in batches:
            for number in batch.column(0).to_pylist():
                failed, result = run_piece(function, pieces[number])
                columns = [pa.array([number]), pa.array([result], pa.binary()), pa.array([failed])]
                yield pa.RecordBatch.from_arrays(columns, ["id", "result", "failed"])

    return run


def run_piece(function: Callable[[T], R], piece: T) -> tuple[bool, bytes]:
    """(False, pickled result), or (True, pickled error) for an error that another attempt would meet again."""
    try:
        return False, pickle.dumps(function(piece))
    except _LASTING as error:
        return True, pickle.dumps(error)


class _Watch:
    """Shows the progress of one Spark job from a thread: completed tasks count with their mean weight."""

    def __init__(self, context: Any, progress: Progress, weight: float) -> None:
        self._context = context
        self._progress = progress
        self._weight = weight
        self._shown = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True) if context is not None else None
        self._group = f"magnetar-{id(self):x}"

    def __enter__(self) -> None:
        if self._thread is not None:
            self._context.setJobGroup(self._group, "magnetar pipeline", True)
            self._thread.start()

    def __exit__(self, kind: object, *_: object) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        if kind is None:
            self._progress.advance(self._weight - self._shown)

    def _watch(self) -> None:
        tracker = self._context.statusTracker()
        while not self._stop.wait(_POLL_S):
            stages = [
                tracker.getStageInfo(stage)
                for job in tracker.getJobIdsForGroup(self._group)
                for stage in (tracker.getJobInfo(job).stageIds if tracker.getJobInfo(job) else ())
            ]
            tasks = sum(stage.numTasks for stage in stages if stage)
            if not tasks:
                continue
            done = self._weight * sum(stage.numCompletedTasks for stage in stages if stage) / tasks
            if done > self._shown:
                self._progress.advance(done - self._shown)
                self._shown = done
