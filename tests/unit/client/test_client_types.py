"""Type checkers accept right programs, and refuse misspelt settings and wrong types of the public API."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("type checkers")]

RIGHT = """
import json
from dataclasses import dataclass
from typing import Any, assert_type

from barnabas import (
    Admin, AsyncConsumer, AsyncProducer, Broker, ClientTimeout, Consumer, ConsumerConnector, ConsumerKeywords, Message,
    Producer, ProducerKeywords, ShareConsumer, ShareMessage, SimpleConsumer, TopicPartition,
)
from barnabas.schemas import AvroEncoder
from barnabas.testing import TestBroker, TestCluster


@dataclass
class Order:
    number: int


def order_of(data: bytes) -> Order:
    return Order(**json.loads(data))


def consume() -> None:
    with Consumer("h:1", group_id="g", decoder="json", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("orders")
        for message in consumer:
            assert_type(message, Message[Any, bytes | None])
            print(message.value["id"], message.key, message.offset + 1)
    assert_type(Consumer("h:1").poll(), Message[bytes | None, bytes | None] | None)
    assert_type(Consumer("h:1").poll(), Message | None)
    assert_type(Consumer("h:1", decoder=order_of).poll_many(), list[Message[Order, bytes | None]])
    assert_type(Consumer("h:1", decoder=order_of, key_decoder="string").poll_many(), list[Message[Order, Any]])
    assert_type(Consumer("h:1", key_decoder=bytes.decode).poll_many(), list[Message[bytes | None, str]])
    assert_type(Consumer("h:1", decoder="json", key_decoder=bytes.decode).poll_many(), list[Message[Any, str]])
    assert_type(Consumer("h:1", decoder="json", key_decoder="json").poll_many(), list[Message[Any, Any]])
    assert_type(Consumer("h:1", key_decoder="json").poll_many(), list[Message[bytes | None, Any]])
    with ShareConsumer("h:1", group_id="g", decoder=order_of, share_acknowledgement_mode="explicit") as sharing:
        for shared in sharing:
            assert_type(shared, ShareMessage[Order, bytes | None])
            sharing.acknowledge(shared, "accept" if shared.value.number + shared.delivery_count else "release")
    assert_type(ShareConsumer("h:1", group_id="g").poll(), ShareMessage | None)
    configured: Consumer[Any] = Consumer({"bootstrap.servers": "h:1", "value.deserializer": "json"})
    configured.seek("orders", 0, 5)
    configured.seek(("orders", 0), "earliest")
    configured.seek(TopicPartition("orders", 0), 5)


def handle(message: Message) -> bytes:
    value, key, *rest = message
    print(value, key, rest, message[3], message._replace(value=b"x")._asdict())
    return message.value or b""


def handle_order(message: Message[Order]) -> int:
    return message.value.number


handle(Message(b"x", b"k", headers=(("h", None),)))
handle_order(Message(Order(1)))


async def over_asyncio() -> None:
    async with AsyncConsumer(["h:1", "h:2"], group_id="g", decoder=order_of) as consumer:
        async for message in consumer:
            assert_type(message.value, Order)
    async with AsyncProducer("h:1", acks="all", encoder=lambda order: json.dumps(order).encode()) as producer:
        delivery = await producer.send_and_wait("orders", b"x", partition=1)
        print(delivery.offset)


def bootstraps() -> None:
    with TestBroker(log_retention_ms=1, auto_create_topics_enable=True) as broker, Broker(num_partitions=2) as embedded:
        for where in (broker, embedded):
            Producer(where)
            Consumer(where)
            Admin(where)
            SimpleConsumer(where)
        broker.consumer(decoder="json", group_id="g").poll(1)
        broker.producer(linger_ms=5)
    TestCluster(brokers=1, num_partitions=3)
    Producer([("h", 1), "h:2"])
    Producer(broker_list="0:h:1", queue_time=5)
    ConsumerConnector("h:1", groupid="g", autooffset_reset="largest")


def settings() -> None:
    chosen: ProducerKeywords = {"linger_ms": 5, "acks": "all", "sasl_password": "secret", "security_protocol": "SSL"}
    Producer("h:1", **chosen)
    reading: ConsumerKeywords = {"group_id": "g", "auto_offset_reset": "earliest"}
    Consumer("h:1", **reading)
    level = "read_committed" if chosen else "read_uncommitted"
    Consumer("h:1", isolation_level=level, group_id=None, max_poll_records=None)
    Admin("h:1", request_timeout_ms=5).describe_topic("orders")


try:
    Producer("h:1").send("t", b"x").result(1)
except TimeoutError as error:
    assert isinstance(error, ClientTimeout)
with Producer("h:1") as plain, plain.transaction() as same:
    same.send("t", b"x")
"""

WRONG: Mapping[str, tuple[str, str]] = {
    'Producer("h:1", lingerms=5)': (
        'Unexpected keyword argument "lingerms" for "Producer"; did you mean "linger_ms"?',
        'No parameter named "lingerms"',
    ),
    'Producer("h:1", linger_ms="soon")': (
        'Argument "linger_ms" to "Producer" has incompatible type "str"; expected "float | None"',
        '"Literal[\'soon\']" is not assignable to "float"',
    ),
    "Producer(5)": ('Argument 1 to "Producer" has incompatible type "int"', '"Literal[5]" is not assignable to "str"'),
    'Producer("h:1", encoder=5)': ('Argument "encoder" to "Producer" has incompatible type "int"', '"encoder"'),
    'AsyncProducer("h:1", compresion_type="zstd")': ('did you mean "compression_type"?', '"compresion_type"'),
    'Consumer("h:1", groupid="g")': (
        'Unexpected keyword argument "groupid" for overloaded function "Consumer"; did you mean "group_id"?',
        'No overloads for "__init__" match',
    ),
    'Consumer("h:1", max_poll_records="many")': ("No overload variant", "\"Literal['many']\" is not assignable"),
    "Consumer(5)": ('No overload variant of "Consumer" matches argument type "int"', '"Literal[5]" is not assignable'),
    'AsyncConsumer("h:1", group="g")': ('"group" for overloaded function "AsyncConsumer"', "No overloads"),
    'SimpleConsumer("h:1", max_wait=5)': ('"max_wait" for "SimpleConsumer"', 'No parameter named "max_wait"'),
    'Admin("h:1", client="me")': ('did you mean "client_id"?', 'No parameter named "client"'),
    'ConsumerConnector("h:1", groupid="g", autooffset="x")': ('"autooffset_reset"', 'No parameter named "autooffset"'),
    "Broker(num_partition=3)": ('did you mean "num_partitions"', 'No parameter named "num_partition"'),
    "TestBroker(log_retention=3)": ('"log_retention" for "TestBroker"', 'No parameter named "log_retention"'),
    "TestBroker().producer(lingerms=3)": ('did you mean "linger_ms"?', 'No parameter named "lingerms"'),
    'Producer("h:1").send(b"t", b"x")': ('incompatible type "bytes"; expected "str"', 'is not assignable to "str"'),
    'Producer("h:1").send("t", valu=b"x")': ('did you mean "value"?', 'No parameter named "valu"'),
    'Producer("h:1").check_open()': ('"Producer" has no attribute "check_open"', '"check_open"'),
    'number: int = Message(b"x")': (
        'expression has type "Message[bytes | None, bytes | None]", variable has type "int"',
        '"Message[bytes | None, bytes | None]" is not assignable to "int"',
    ),
    'Consumer("h:1").poll_many()[0].value["id"]': ("is not indexable", 'Object of type "None" is not subscriptable'),
    'Consumer("h:1", decoder=bytes.decode).poll_many()[0].value + 5': ("Unsupported operand", 'Operator "+" not'),
    'Consumer("h:1").seek("t", 0)': ("No overload variant", '"Literal[\'t\']" is not assignable to "tuple[str, int]"'),
    'Admin("h:1").delete_topic(["t"])': ('expected "str"', 'not assignable to "str"'),
}
"""Line of a program → a part of mypy's error, and one of pyright's."""
HEAD = (
    "from barnabas import Admin, AsyncConsumer, AsyncProducer, Broker, Consumer, ConsumerConnector, Message, Producer\n"
    "from barnabas import SimpleConsumer\n"
    "from barnabas.testing import TestBroker\n\n"
)
Errors = dict[int, list[str]]


@pytest.fixture(scope="module")
def types(checkout: Path) -> Path:
    """A folder with a link to the package, as tools/check_types.sh has it: mypy's cache knows the modules by it."""
    folder = checkout / ".build" / "types"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "barnabas").exists():
        (folder / "barnabas").symlink_to(checkout)
    return folder


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    (folder / "right.py").write_text(RIGHT)
    (folder / "wrong.py").write_text(HEAD + "".join(f"{line}\n" for line in WRONG))
    return folder


@pytest.fixture(scope="module")
def mypy_errors(types: Path, programs: Path, checkout: Path) -> dict[str, Errors]:
    if find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    found: dict[str, Errors] = {}
    for name in ("right", "wrong"):
        command: list[str | Path] = [sys.executable, "-m", "mypy", "--config-file", checkout / "pyproject.toml"]
        command += ["--cache-dir", checkout / ".mypy_cache", programs / f"{name}.py"]
        ran = subprocess.run(
            command, cwd=types, env={**os.environ, "MYPYPATH": "."}, capture_output=True, text=True, check=False
        )
        assert ran.returncode in (0, 1), ran.stdout + ran.stderr
        found[name] = {}
        for line, text in re.findall(rf"{name}\.py:(\d+): error: (.*)", ran.stdout):
            found[name].setdefault(int(line), []).append(text)
    return found


@pytest.fixture(scope="module")
def pyright_errors(types: Path, programs: Path) -> dict[str, Errors]:
    if find_spec("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    config = {"extraPaths": [str(types)], "include": ["."], "pythonPath": sys.executable}
    (programs / "pyrightconfig.json").write_text(json.dumps(config))
    command: list[str | Path] = [sys.executable, "-m", "pyright", "--project", programs, "--outputjson"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode not in (0, 1):
        pytest.skip(f"pyright does not run here; it comes from npm at its first start: {ran.stderr[-300:]}")
    found: dict[str, Errors] = {"right": {}, "wrong": {}}
    diagnostics: list[dict[str, Any]] = json.loads(ran.stdout)["generalDiagnostics"]
    for each in diagnostics:
        if each["severity"] == "error":
            errors = found[Path(each["file"]).stem]
            errors.setdefault(each["range"]["start"]["line"] + 1, []).append(each["message"])
    return found


def line_of(program: str) -> int:
    return HEAD.count("\n") + list(WRONG).index(program) + 1


def test_mypy_accepts_right_programs(mypy_errors: dict[str, Errors]) -> None:
    assert mypy_errors["right"] == {}


@pytest.mark.parametrize("program", WRONG)
def test_mypy_names_what_is_wrong(mypy_errors: dict[str, Errors], program: str) -> None:
    errors = mypy_errors["wrong"].get(line_of(program), [])
    assert any(WRONG[program][0] in error for error in errors), errors


def test_pyright_accepts_right_programs(pyright_errors: dict[str, Errors]) -> None:
    assert pyright_errors["right"] == {}


@pytest.mark.parametrize("program", WRONG)
def test_pyright_names_what_is_wrong(pyright_errors: dict[str, Errors], program: str) -> None:
    errors = pyright_errors["wrong"].get(line_of(program), [])
    assert any(WRONG[program][1] in error for error in errors), errors
