"""Texts as Spark makes them, shortened."""

import pytest

from twinbus.pipeline.failures import reason_of

STREAM = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] \
Failed when Python streaming data source perform latestOffset: Traceback (most recent call last):
  File "worker.py", line 1, in main
    raise first
KeyError: 'inner'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "reader.py", line 9, in latestOffset
    raise EntityNotFound.at(path)
twinbus.errors.EntityNotFound: The messaging entity 'orders' could not be found. Create it.
 SQLSTATE: 38000
\tat org.apache.spark.sql.SomeClass: nothing to see"""


def test_the_reason_is_what_our_code_raised_deepest() -> None:
    assert reason_of(RuntimeError(STREAM)) == ("The messaging entity 'orders' could not be found. Create it.", False)


FULL = """An error occurred while calling o76.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/lake/entity=q. SQLSTATE: 58030
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailedWhileWritingRowsError(QueryExecutionErrors.scala:827)
Caused by: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\t... 29 more
\tSuppressed: org.apache.hadoop.fs.FSError: java.io.IOException: No space left on device
\tCaused by: java.io.IOException: something else
Caused by: java.io.IOException: No space left on device
\t... 41 more
"""
FULL_IN_A_BATCH = f"""[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [FOREACH_BATCH_USER_FUNCTION_ERROR] An error \
occurred in the user provided function in foreach batch sink. Reason: Traceback (most recent call last):
  File "lake.py", line 9, in write_batch
    raise Py4JJavaError(
py4j.protocol.Py4JJavaError: {FULL}
 SQLSTATE: 39000 SQLSTATE: XXKST"""


@pytest.mark.parametrize("text", [FULL, FULL_IN_A_BATCH])
def test_a_disk_that_is_full_is_named_as_the_cause(text: str) -> None:
    said = "Task failed while writing rows to file:/lake/entity=q: No space left on device"
    assert reason_of(RuntimeError(text)) == (said, False)


def test_what_spark_refuses_in_a_batch_is_reported_without_its_codes() -> None:
    text = "Traceback (most recent call last):\npyspark.errors.AnalysisException: [PATH_NOT_FOUND] No path. SQLSTATE: 42K03\n"
    assert reason_of(RuntimeError(text)) == ("No path.", False)


def test_what_spark_says_itself_is_reported_without_its_codes() -> None:
    text = "[PATH_NOT_FOUND] Path does not exist: file:/lake. SQLSTATE: 42K03"
    assert reason_of(RuntimeError(text)) == ("Path does not exist: file:/lake.", False)


def test_what_java_says_is_reported_without_its_classes() -> None:
    text = (
        "An error occurred while calling o42.getFileSystem.\n"
        ': org.apache.hadoop.fs.UnsupportedFileSystemException: No FileSystem for scheme "s4"\n'
        "\tat org.apache.hadoop.fs.FileSystem.getFileSystemClass(FileSystem.java:3443)"
    )
    assert reason_of(RuntimeError(text)) == ('No FileSystem for scheme "s4"', False)


LATE = """Python worker failed to connect back.
=== Streaming Query ===
Identifier: [id = 1, runId = 2]
Current Committed Offsets: {}

Current State: INITIALIZING
Thread State: RUNNABLE"""
LATE_IN_A_JOB = """An error occurred while calling o76.save.
: org.apache.spark.SparkException: Job aborted due to stage failure: Lost task 0.0 in stage 3.0
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:3134)
Caused by: org.apache.spark.SparkException: Python worker failed to connect back.
\tat org.apache.spark.api.python.PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:342)
Caused by: java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back
\t... 23 more
"""
LATE_IN_A_BATCH = f"Traceback (most recent call last):\npy4j.protocol.Py4JJavaError: {LATE_IN_A_JOB}"


@pytest.mark.parametrize("text", [LATE, LATE_IN_A_JOB, LATE_IN_A_BATCH])
def test_a_python_process_that_is_not_ready_in_time_may_be_the_next_time(text: str) -> None:
    """Spark waits for ten seconds, which a starved machine may need to read the program."""
    reason = reason_of(RuntimeError(text))
    assert reason.is_transient
    assert reason.text.startswith("A Python process that Spark started was not ready in time")


def test_an_exception_without_a_text_is_named() -> None:
    assert reason_of(KeyboardInterrupt()) == ("KeyboardInterrupt", False)


def test_what_may_go_better_later_is_known_by_its_class() -> None:
    text = STREAM.replace("twinbus.errors.EntityNotFound", "twinbus.client.remote_errors.ConnectionLost")
    assert reason_of(RuntimeError(text)).is_transient
