import pickle

import pytest

from magnetar.client.errors import InputError
from magnetar.pipeline.damage import Quarantined, Reason
from magnetar.pipeline.errors import CorruptEntryError, DataLossError, NoSuchTopicError, PipelineError
from magnetar.pipeline.jobs.reading import NoIndexError
from magnetar.pipeline.jobs.runner import LocalRunner, TaskFailedError, run_piece
from magnetar.pipeline.jobs.session import with_retries
from magnetar.pipeline.lake.errors import SchemaDriftError, SinkFullError


def test_pieces_in_their_order(progress):
    assert LocalRunner().map(lambda n: n * 2, [3, 1, 2], progress, [1, 1, 1]) == [6, 2, 4]
    assert LocalRunner().map(lambda n: n, [], progress, []) == []


def test_a_result_crosses_as_bytes():
    failed, result = run_piece(lambda n: {"n": n}, 4)
    assert (failed, pickle.loads(result)) == (False, {"n": 4})


@pytest.mark.parametrize("error", [PipelineError("damaged"), InputError("no file"), ValueError("option")])
def test_errors_that_would_come_again_end_the_job(error):
    def fails(_):
        raise error

    failed, result = run_piece(fails, 1)
    again = pickle.loads(result)
    assert failed
    assert (type(again), str(again)) == (type(error), str(error))


def test_other_errors_are_left_to_spark_to_retry():
    def fails(_):
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        run_piece(fails, 1)


def test_a_failed_task_is_one_line():
    text = "An exception was thrown from the Python worker\nTraceback:\n  File x\nConnectionResetError: gone\n\nJVM stacktrace:"
    error = TaskFailedError(text)
    assert str(error) == "a task failed: ConnectionResetError: gone"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    assert "Job aborted" in str(TaskFailedError("Job aborted due to stage failure"))
    assert str(TaskFailedError("")) == "a task failed: no reason"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,7]", "local[2,7]"),
        ("yarn", "yarn"),
    ],
)
def test_local_masters_try_again_like_clusters(given, used):
    assert with_retries(given) == used


@pytest.mark.parametrize(
    "error",
    [
        SinkFullError("/lake/t", "No space left on device"),
        SchemaDriftError("amount", "int64", "string"),
        CorruptEntryError(Quarantined("t", 1, 2, Reason.CHECKSUM, "the CRC32C does not match")),
        DataLossError("t", 1, 5, "they are trimmed"),
        NoSuchTopicError("t"),
        NoIndexError("t"),
        TaskFailedError("Traceback\nValueError: x"),
    ],
    ids=lambda each: type(each).__name__,
)
def test_errors_cross_processes_with_their_texts(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.__dict__ == error.__dict__
