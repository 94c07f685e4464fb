"""A headless browser for the web console, and clusters of Barnabas and of Apache Kafka that it looks at."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen
from support.compat.java_client import tiered_storage_classpath
from support.compat.model import Unavailable
from support.kafka_server import KafkaServer
from support.process import BrokerProcess, broker_process
from support.waiting import PATIENCE_S, wait_for

from barnabas import Admin, Broker, Consumer, Message, Producer, TopicPartition
from barnabas.ports.broker_api.offsets import EARLIEST_LOCAL
from barnabas.schemas import AvroEncoder

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCRIPT = "<img src=x onerror=alert(1)><script>alert(2)</script>"
LOOKS = {"light": (1280, 860, "light"), "dark": (1280, 860, "dark"), "phone": (375, 780, "light")}
SHIFTS = """() => new Promise(done => {
  let sum = 0;
  const add = list => list.getEntries().forEach(entry => { if (!entry.hadRecentInput) sum += entry.value; });
  new PerformanceObserver(add).observe({ type: 'layout-shift', buffered: true });
  setTimeout(() => done(sum), 200);
})"""
FAULTS = """async () => (await axe.run(document, { resultTypes: ['violations'] })).violations
  .filter(each => ['serious', 'critical'].includes(each.impact))
  .map(each => each.id + ': ' + each.nodes.slice(0, 3)
    .map(node => node.html.slice(0, 160) + ' ' + node.failureSummary).join(' | '))"""
USERS = {"admin": "admin-secret", "ann": "ann-secret"}
_AXE = Path(__file__).parent / "axe" / "axe.min.js"
_TIERED_FOLDER = "remote"


class Visitor:
    """A page of the browser that notes what goes wrong in it."""

    def __init__(self, chromium: Any, look: str) -> None:
        width, height, scheme = LOOKS[look]
        self.context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, timezone_id="Europe/Berlin"
        )
        self.context.add_init_script(path=_AXE)
        self.context.set_default_timeout(PATIENCE_S * 1000)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("console", self._note)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", self._dismiss)
        self.page.on("request", lambda request: self._check(request.url))
        self._statuses: list[int] = []
        self.page.on("response", self._note_status)

    def visit(self, address: str) -> int:
        """Load a page; return its status. What is slow has 202 first, and loads itself again."""
        self._statuses.clear()
        self.page.goto(address)
        self.page.wait_for_selector("main:not(:has-text('The cluster is being read'))")
        self.page.wait_for_load_state()
        return self._statuses[-1]

    def _note_status(self, response: Any) -> None:
        if response.request.is_navigation_request() and response.request.frame == self.page.main_frame:
            self._statuses.append(response.status)

    def _note(self, line: Any) -> None:
        if line.type in ("error", "warning"):
            self.wrong.append(line.text)

    def _dismiss(self, dialog: Any) -> None:
        self.wrong.append(f"dialog {dialog.message}")
        dialog.dismiss()

    def _check(self, address: str) -> None:
        if not address.startswith(("http://127.0.0.1:", "data:", "blob:")):
            self.wrong.append(f"a request to {address}")


@frozen(kw_only=True)
class RunningCluster:
    """A broker in a process of its own."""

    bootstrap: str
    kill: Callable[[], object]
    restart: Callable[[], object]
    """Starts it again at the same address, after `kill`."""
    remote_storage: str = ""
    """The URL of the remote storage whose manifests the console reads; empty: those of Kafka it cannot."""


@contextmanager
def barnabas(folder: Path) -> Iterator[RunningCluster]:
    """Start a broker of Barnabas with tiered storage in a folder."""
    again: list[BrokerProcess] = []
    remote = f"file://{folder / _TIERED_FOLDER}"
    own = (
        "remote.log.storage.system.enable=true",
        f"remote.log.storage.manager.class.name={remote}",
        "remote.log.manager.task.interval.ms=50",
        "log.retention.check.interval.ms=50",
    )
    with broker_process(folder / "data", *own) as broker:
        listen = (f"kafka://{broker.bootstrap}",)
        try:
            yield RunningCluster(
                bootstrap=broker.bootstrap,
                kill=broker.kill,
                restart=lambda: again.append(BrokerProcess(folder / "data", *own, listen=listen)),
                remote_storage=remote,
            )
        finally:
            for each in again:
                each.stop()


@contextmanager
def _started(kafka: KafkaServer) -> Iterator[RunningCluster]:
    def start() -> None:
        kafka.start()
        kafka.wait_ready()

    try:
        start()
        yield RunningCluster(bootstrap=kafka.bootstrap, kill=kafka.kill, restart=start)
    finally:
        kafka.kill()


@contextmanager
def apache_kafka(folder: Path) -> Iterator[RunningCluster]:
    """Start Apache Kafka with the tiered storage of its own tests; skip the test where it cannot be had."""
    try:
        classes = tiered_storage_classpath()
    except Unavailable as error:
        pytest.skip(f"Apache Kafka cannot be had here: {error}")
    metadata = "rlmm.config.remote.log.metadata.topic"
    tiered = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.class.path": classes,
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(folder / _TIERED_FOLDER),
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        f"{metadata}.replication.factor": "1",
        f"{metadata}.num.partitions": "1",
        "remote.log.manager.task.interval.ms": "200",
        "log.retention.check.interval.ms": "200",
        "log.initial.task.delay.ms": "200",
    }
    with _started(KafkaServer(folder, more=tiered)) as running:
        yield running


@contextmanager
def barnabas_with_users(_folder: Path) -> Iterator[str]:
    """Start a broker of Barnabas whose users sign in by SASL/PLAIN; `admin` may do everything."""
    own = 'username="admin" password="admin-secret"'
    known = " ".join(f'user_{name}="{password}"' for name, password in USERS.items())
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    config = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{module} required {own} {known};",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:admin",
    }
    with Broker(storage="memory", listeners="SASL_PLAINTEXT://127.0.0.1:0", config=config) as broker:
        yield broker.bootstrap


@contextmanager
def apache_kafka_with_users(folder: Path) -> Iterator[str]:
    """Start Apache Kafka with users as those of `barnabas_with_users`; skip the test where it cannot be had."""
    with _started(KafkaServer(folder, USERS)) as running:
        yield running.bootstrap


def fill(bootstrap: str, registry: str) -> None:
    """Fill a cluster with topics, groups and transactions; some have scripts as names and values."""
    with Admin(bootstrap) as admin:
        for name, partitions in (("orders", 3), ("payments", 6), ("page-views", 12), ("odd", 1), ("typed", 1)):
            admin.create_topic(name, partitions=partitions)
        admin.alter_topic_configs("orders", {"retention.ms": "604800000", "cleanup.policy": "delete"})
    books = ("Emma", "Ulysses", "Middlemarch", "Nostromo", "Kim")
    with Producer(bootstrap) as producer:
        for number in range(240):
            order = {
                "id": number,
                "title": books[number % 5],
                "price": number % 40 + 5,
                "user": {"name": f"user-{number % 9}"},
            }
            topic = ("orders", "payments", "page-views")[number % 3]
            producer.send(
                topic, json.dumps(order).encode(), f"order-{number}".encode(), headers=[("trace", b"%08x" % number)]
            )
        script = Message(SCRIPT.encode(), SCRIPT.encode(), ((SCRIPT, SCRIPT.encode()),))
        for value in (script, bytes(range(64)), b"x" * 1_000_000):
            producer.send("odd", value)
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    with Producer(bootstrap, encoder=AvroEncoder(registry, schema)) as typed:
        typed.send("typed", {"id": 1})
    schema["fields"].append({"name": "title", "type": "string", "default": ""})  # type: ignore[attr-defined]
    with Producer(bootstrap, encoder=AvroEncoder(registry, schema)) as typed:
        typed.send("typed", {"id": 2, "title": "Emma"})
    for name in ("billing-1", SCRIPT):
        with Producer(bootstrap, transactional_id=name) as paying, paying.transaction():
            paying.send("payments", b'{"paid": true}')
    for group, rest in (("billing", 12), ("warehouse-load", 0), (SCRIPT, 3)):
        with Consumer(bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders"])
            wait_for(lambda: consumer.poll(0.2) is not None)
        with Admin(bootstrap) as admin:
            ends = admin.list_offsets({("orders", number): "latest" for number in range(3)})
            admin.alter_group_offsets(group, {tp: max(0, end - rest) for tp, end in ends.items()})
    _fill_tiers(bootstrap)
    with Producer(bootstrap, callback_handler="audit") as audited:
        for number in range(5):
            audited.send("payments", b'{"counted": %d}' % number)


def _fill_tiers(bootstrap: str) -> None:
    """Fill tiered topics, and wait until a message is only in remote storage. Kafka has no segments below 1 MiB."""
    tiered = {"remote.storage.enable": "true", "segment.bytes": "1048576", "local.retention.bytes": "3000000"}
    with Admin(bootstrap) as admin:
        for name, partitions in (("old-orders", 3), ("old-clicks", 1)):
            admin.create_topic(name, partitions=partitions, configs={**tiered, "file.delete.delay.ms": "0"})
    with Producer(bootstrap, linger_ms=0) as producer:
        for number in range(600):
            producer.send("old-orders", b'{"id": %06d}' % number * 1400, partition=number % 10 // 6)
            if number % 10 == 9:
                producer.flush()
    tp = TopicPartition("old-orders", 0)
    with Admin(bootstrap) as admin:
        wait_for(lambda: admin.list_offsets({tp: EARLIEST_LOCAL})[tp] > 0, pause_s=0.1)
