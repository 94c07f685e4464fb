import pytest

from barnabas.pipeline.spark.errors import SparkFailed, plain_spark_errors, summary

_PLANNING = """[PYTHON_DATA_SOURCE_ERROR] Failed to generate read partitions: Traceback (most recent call last):
  File "ranges.py", line 59, in select
barnabas.ports.errors.ApiError: UNKNOWN_TOPIC_OR_PARTITION: there is no topic 't2'; there is t
 SQLSTATE: 38000"""


def test_our_own_error_is_found() -> None:
    assert summary(_PLANNING) == "UNKNOWN_TOPIC_OR_PARTITION: there is no topic 't2'; there is t"


def test_else_the_last_python_error() -> None:
    assert summary("Job aborted\n  File x\nValueError: a\nsome.module.OddError: b\n at java") == "OddError: b"


def test_else_the_first_cause_in_java() -> None:
    trace = """An error occurred while calling o141.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.errors.QueryExecutionErrors$.jobAbortedError(QueryExecutionErrors.scala:1)
Caused by: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/t.
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)"""
    assert summary(trace) == "No space left on device"


def test_else_the_first_line() -> None:
    assert summary("\n  [CODE] what happened\n  at java") == "[CODE] what happened"
    assert summary("") == "Spark failed without saying why"


def test_a_java_that_is_gone_is_no_fault_of_the_table() -> None:
    with pytest.raises(SparkFailed, match="Spark's Java has ended"), plain_spark_errors():
        raise ConnectionRefusedError(111, "Connection refused")
