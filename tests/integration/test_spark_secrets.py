"""Passwords in the options of Spark's source and sink are neither in plans nor in the event log."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.testing import TestBroker

pytestmark = [pytest.mark.slow, pytest.mark.spark, pytest.mark.xdist_group("spark")]

PASSWORD = "planted-secret-4711"
COPY = """
import json, sys
from barnabas.pipeline.session import local_session

options, topic, target, folder = json.loads(sys.stdin.read())
log = {"spark.eventLog.enabled": "true", "spark.eventLog.dir": folder, "spark.eventLog.compress": "false"}
with local_session("secrets", cores=1, config=log) as spark:
    frame = spark.read.format("barnabas").options(**options, subscribe=topic).load()
    copied = frame.select("key", "value")
    copied.write.format("barnabas").mode("append").options(**options, topic=target).save()
    print(frame._jdf.queryExecution().toString())
"""
"""Runs in a process of its own: a process has one session, and that of the other tests has no event log."""


def test_password_of_options_is_in_no_plan_and_no_event_log(tmp_path: Path) -> None:
    with TestBroker(users={"alice": PASSWORD}) as broker:
        topic, target = broker.create_topic(), broker.create_topic()
        broker.produce(topic, [b"one"])
        secured = {
            "kafka.bootstrap.servers": broker.bootstrap,
            "kafka.security.protocol": "SASL_PLAINTEXT",
            "kafka.sasl.mechanism": "PLAIN",
            "kafka.sasl.jaas.config": f'Module required username="alice" password="{PASSWORD}";',
        }
        done = subprocess.run(
            [sys.executable, "-P", "-c", COPY],
            input=json.dumps([secured, topic, target, str(tmp_path)]),
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "barnabas" in done.stdout
        assert PASSWORD not in done.stdout
        broker.assert_produced(target, [b"one"])
    files = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert sum(each.stat().st_size for each in files) > 10_000
    assert not any(PASSWORD in each.read_text(errors="replace") for each in files)
