"""The examples of the pages for those who come from another client: before and after print the same."""

import asyncio
import contextlib
import shutil
import ssl
import subprocess
import warnings
from pathlib import Path
from typing import Any

import pytest
from support.command import barnabas_here
from support.doc_commands import ADDRESS, Reader
from support.documents import blocks, lines_of
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, ApiError, AsyncConsumer, AuthenticationError, Consumer, Producer
from barnabas.testing import TestBroker

LIBRARIES = {"kafka-python": "kafka", "confluent-kafka": "confluent_kafka", "aiokafka": "aiokafka"}
PAGES = {
    "kafka-python": "docs/coming-from-kafka-python.md",
    "confluent-kafka": "docs/coming-from-confluent-kafka.md",
    "aiokafka": "docs/coming-from-aiokafka.md",
}
EXPECTED = {
    "kafka-python": [(n, b"customer-7", n) for n in range(3)],
    "confluent-kafka": [(n, b"customer-7", b"%d" % n) for n in range(3)],
    "aiokafka": [(n, b"customer-7", n) for n in range(3)],
}


def run_python(page: str, heading: str) -> list[tuple[object, ...]]:
    """Run the block that begins with this comment against a broker of its own; return what it prints."""
    (block,) = (block for block in blocks(page, "python") if block.code.startswith(f"# {heading}"))
    printed: list[tuple[object, ...]] = []
    with TestBroker() as broker:
        code = block.code.replace(ADDRESS, broker.bootstrap)
        names = {"__name__": "example", "print": lambda *values: printed.append(values)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python's, of functions as serializers
            exec(compile(code, page, "exec"), names)
    return printed


@pytest.mark.parametrize("library", LIBRARIES)
def test_example_of_another_library_runs_against_our_broker(library: str) -> None:
    pytest.importorskip(LIBRARIES[library], reason=f"{library} is not installed")
    assert run_python(PAGES[library], "before") == EXPECTED[library]


@pytest.mark.parametrize("library", LIBRARIES)
def test_migrated_example_prints_the_same_as_the_one_before(library: str) -> None:
    assert run_python(PAGES[library], "after") == EXPECTED[library]


def test_keyword_arguments_of_kafka_python_work_as_they_are() -> None:
    assert run_python(PAGES["kafka-python"], "the least change") == EXPECTED["kafka-python"]


def test_members_of_kafka_python_share_a_group_by_default() -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    with TestBroker() as broker, broker.admin() as admin:
        admin.create_topic("orders", partitions=4)
        theirs = kafka.KafkaConsumer("orders", bootstrap_servers=broker.bootstrap, group_id="g")
        with contextlib.closing(theirs), Consumer(broker.bootstrap, group_id="g") as ours:
            ours.subscribe("orders")

            def both_have_partitions() -> bool:
                theirs.poll(timeout_ms=50)
                ours.poll(0.05)
                return [len(theirs.assignment()), len(ours.assignment)] == [2, 2]

            wait_for(both_have_partitions)


def test_members_of_aiokafka_share_a_group_with_its_assignor() -> None:
    aiokafka = pytest.importorskip("aiokafka", reason="aiokafka is not installed")

    async def share(bootstrap: str, **settings: Any) -> None:
        theirs = aiokafka.AIOKafkaConsumer("orders", bootstrap_servers=bootstrap, group_id="g")
        await theirs.start()
        try:
            async with AsyncConsumer(bootstrap, group_id="g", **settings) as ours:
                await ours.subscribe("orders")
                while [len(theirs.assignment()), len(ours.consumer.assignment)] != [2, 2]:
                    await ours.poll(0.05)
        finally:
            await theirs.stop()

    with TestBroker() as broker, broker.admin() as admin:
        admin.create_topic("orders", partitions=4)
        run = share(broker.bootstrap, partition_assignment_strategy="roundrobin")
        asyncio.run(asyncio.wait_for(run, PATIENCE_S))
        asyncio.run(asyncio.wait_for(share(broker.bootstrap), PATIENCE_S))  # by KIP-848, in the same group
        with pytest.raises(ApiError, match="INCONSISTENT_GROUP_PROTOCOL"):
            asyncio.run(asyncio.wait_for(share(broker.bootstrap, group_protocol="classic"), PATIENCE_S))


def test_secured_settings_of_each_library_work_as_they_are() -> None:
    with TestBroker(security="sasl_ssl", users={"alice": "secret"}) as broker:
        ca = broker.security.ca_location
        java = {
            "bootstrap.servers": broker.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            'username="alice" password="secret";',
            "ssl.truststore.location": ca,
            "ssl.truststore.type": "PEM",
            "key.serializer": "org.apache.kafka.common.serialization.StringSerializer",
            "value.serializer": "org.apache.kafka.common.serialization.StringSerializer",
        }
        librdkafka = {
            "metadata.broker.list": broker.bootstrap,
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": ca,
            "group.id": "readers",
            "auto.offset.reset": "smallest",
        }
        with Producer(java) as producer:
            producer.send("orders", "one", key="k").result(PATIENCE_S)
        with Consumer(librdkafka) as consumer:
            consumer.subscribe(["orders"])
            (message,) = consumer.poll_many(1, timeout=PATIENCE_S)
        kafka_python: dict[str, Any] = {
            "bootstrap_servers": [broker.bootstrap],
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
            "ssl_cafile": ca,
        }
        with Admin(**kafka_python) as admin:
            assert admin.list_topics() == ["orders"]
        context = ssl.create_default_context(cafile=ca)
        login: dict[str, Any] = {
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "secret",
        }
        with Consumer(broker.bootstrap, security_protocol="SASL_SSL", ssl_context=context, **login) as consumer:
            consumer.assign("orders", position="earliest")
            assert consumer.poll(PATIENCE_S) == message
        stranger = ssl.create_default_context()
        with (
            Admin(broker.bootstrap, security_protocol="SASL_SSL", ssl_context=stranger, **login) as admin,
            pytest.raises(AuthenticationError, match="certificate"),
        ):
            admin.list_topics()
    assert (message.key, message.value) == (b"k", b"one")


def test_serializers_of_confluent_kafka_work_as_encoders() -> None:
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    assert run_python(PAGES["confluent-kafka"], "serializers") == [([7],)]


def run_shell(lines: list[str], bootstrap: str, reader: Reader) -> list[str]:
    """Run the commands, those of barnabas in this process; return what each prints."""
    printed = []
    for line in lines:
        given, _, command = line.replace(ADDRESS, bootstrap).rpartition(" | ")
        if "barnabas" not in command:
            done = subprocess.run(
                ["sh", "-c", f"{given} | {command}" if given else command], capture_output=True, check=True
            )
            printed.append(done.stdout.decode())
        elif given:
            stdin = subprocess.run(["sh", "-c", given], check=True, capture_output=True).stdout
            words = command.replace("' '", "\0").split()
            printed.append(barnabas_here(*(w.replace("\0", " ") for w in words[1:]), stdin=stdin).stdout.decode())
        else:
            printed.append(reader.run_line(command, bootstrap))
    return printed


def test_commands_of_kcat_and_ours_print_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours run everywhere, kcat's where it is installed."""
    page = "docs/coming-from-kcat.md"
    before, after = blocks(page, "sh")
    reader = Reader(tmp_path, monkeypatch)
    for block in [before, after] if shutil.which("kcat") else [after]:
        with TestBroker() as broker:
            assert run_shell(lines_of(block), broker.bootstrap, reader)[-1] == "1 coffee at 0\n2 tea at 1\n"


def test_commands_of_the_page_for_rpk_users_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "docs/coming-from-rpk.md"
    (block,) = blocks(page, "sh")
    with TestBroker() as broker:
        printed = run_shell(lines_of(block), broker.bootstrap, Reader(tmp_path, monkeypatch))
    assert printed[3] == "customer-7 coffee\n"
