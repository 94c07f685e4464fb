"""Ctrl-C while Spark starts: the command ends in order, and nothing of it stays behind."""

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin
from barnabas.testing import TestBroker

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]


def _runs(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def _spark_begins(pid: int) -> bool:
    with suppress(psutil.Error):  # children that end meanwhile
        for child in psutil.Process(pid).children():  # what Spark's launcher was becomes Java itself
            if child.name() == "java" and "org.apache.spark.deploy.SparkSubmit" in child.cmdline():
                return True
    return False


def test_java_does_not_outlive_a_load_that_is_interrupted_as_it_starts(command: Path, tmp_path: Path) -> None:
    with TestBroker() as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("t")
            broker.produce("t", b"x")
        words = [
            str(command),
            "load",
            "--topics",
            "t",
            "--bootstrap",
            broker.bootstrap,
            "--into",
            str(tmp_path / "table"),
        ]
        load = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            wait_for(lambda: _spark_begins(load.pid))
            load.send_signal(signal.SIGINT)
            said, _ = load.communicate(timeout=PATIENCE_S)
            wait_for(lambda: not _runs(load.pid))
        finally:
            if _runs(load.pid):
                os.killpg(load.pid, signal.SIGKILL)
    assert load.returncode == 128 + signal.SIGINT
    assert b"Traceback" not in said
    assert not (tmp_path / "table").exists()
