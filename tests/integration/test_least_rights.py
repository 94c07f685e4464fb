"""Each program works at a secured broker with the ACLs of docs/security.md, and names what it lacks without one."""

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

import pytest
from attrs import define
from support.certificates import authority, certificate, chain, pem, write_pem
from support.secured_brokers import acl
from support.waiting import wait_for

from barnabas import Admin, Broker, Consumer, Message, Producer
from barnabas.app.clients.classic.producer import ClassicProducer
from barnabas.app.clients.classic.simple_consumer import ClassicSimpleConsumer
from barnabas.app.clients.shared.connect import secured
from barnabas.app.mirror import MirrorMaker
from barnabas.audit.auditor import Auditor
from barnabas.audit.reading import AuditReader
from barnabas.pipeline.queries.run import query
from barnabas.pipeline.session import local_session
from barnabas.ports.broker_api.acls import AclBindingFilter
from barnabas.ports.errors import BarnabasError
from barnabas.schemas.client import RegistryClient
from barnabas.schemas.registry.server import RegistryServer

PATIENCE_S = 300
USER, PASSWORD = "program", "p-secret"
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
DENIED = "AUTHORIZATION_FAILED"


@define
class Harness:
    broker: Broker
    """By SASL_SSL, with ACLs."""
    target: Broker
    """Another cluster, by SASL_PLAINTEXT, with ACLs."""
    ca: str

    def client(self, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": self.ca,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": user,
            "sasl.password": password,
        }

    def target_client(self, user: str = USER, password: str = PASSWORD) -> dict[str, str]:
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
        }

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def admins(self) -> list[Admin]:
        return [
            Admin(self.broker.bootstrap, config=self.client("admin", "a-secret")),
            Admin(self.target.bootstrap, config=self.target_client("admin", "a-secret")),
        ]

    def allow_only(self, *rights: str) -> None:
        """Give the program these rights, `READ topic:t`, and no others; those of the target begin with `target `."""
        for index, admin in enumerate(self.admins()):
            with admin:
                admin.delete_acls([AclBindingFilter(principal=f"User:{USER}")])
                own = [each for each in rights if each.startswith("target ") is bool(index)]
                bindings = [acl(USER, *each.removeprefix("target ").split(" ", 1)) for each in own]
                if bindings:
                    admin.create_acls(bindings)


def listener_settings(listener: str, mechanism: str) -> dict[str, str]:
    users = 'username="admin" password="a-secret" user_admin="a-secret" user_program="p-secret"'
    return {
        "listeners": f"{listener}://127.0.0.1:0",
        "security.inter.broker.protocol": listener,
        "sasl.enabled.mechanisms": mechanism,
        "sasl.mechanism.inter.broker.protocol": mechanism,
        f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config": f"LoginModule required {users};",
        "sasl.scram.bootstrap.users": (
            "SCRAM-SHA-256=[name=admin,password=a-secret];SCRAM-SHA-256=[name=program,password=p-secret]"
        ),
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:admin",
        "auto.create.topics.enable": "false",
        "connection.failed.authentication.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
        "group.initial.rebalance.delay.ms": "0",
    }


@pytest.fixture(scope="module")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    folder = tmp_path_factory.mktemp("least")
    leaf = certificate("localhost", "127.0.0.1", common_name="broker")
    ca = write_pem(folder, "ca.pem", pem(authority().cert_pem))
    tls = {
        "ssl.keystore.location": write_pem(folder, "broker.pem", pem(leaf.private_key_pem) + chain(leaf)),
        "ssl.truststore.location": ca,
    }
    with (
        Broker(storage="memory", config={**listener_settings("SASL_SSL", "SCRAM-SHA-256"), **tls}) as broker,
        Broker(storage="memory", config=listener_settings("SASL_PLAINTEXT", "PLAIN")) as target,
    ):
        harness = Harness(broker, target, ca)
        first, second = harness.admins()
        with first, second:
            for admin in (first, second):
                admin.create_topic("orders", partitions=1, replication_factor=1)
        with audited_producer(harness, harness.client("admin", "a-secret")) as producer:  # it creates _audit, too
            producer.send("orders", b'{"a": 1}').result(PATIENCE_S)
        yield harness


def audited_producer(harness: Harness, client: dict[str, str]) -> Producer:
    props = {"interval.ms": 50, "window.ms": 60_000, "instance": uuid4().hex}
    return Producer(harness.bootstrap, callback_handler="audit", callback_handler_props=props, config=client)


def produce(harness: Harness, _folder: Path) -> None:
    with Producer(harness.bootstrap, config=harness.client()) as producer:
        producer.send("orders", b'{"a": 2}').result(PATIENCE_S)


def produce_transactionally(harness: Harness, _folder: Path) -> None:
    with (
        Producer(harness.bootstrap, config=harness.client(), transactional_id="app-1") as producer,
        producer.transaction(),
    ):
        producer.send("orders", b'{"a": 3}')


def consume(harness: Harness, _folder: Path) -> None:
    own = {"group.id": "billing", "auto.offset.reset": "earliest", "enable.auto.commit": "false"}
    with Consumer(harness.bootstrap, config={**own, **harness.client()}) as consumer:
        consumer.subscribe("orders")
        found: list[Message] = []

        def has_read() -> bool:
            found.extend(consumer.poll_many(10, 0.1))
            return bool(found)

        wait_for(has_read, PATIENCE_S)
        consumer.commit()


class Denials(logging.Handler):
    """Keeps the lines of the log about what was denied."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if DENIED in record.getMessage():
            self.found.append(record.getMessage())


def mirror(harness: Harness, _folder: Path) -> None:
    source = {"bootstrap.servers": harness.bootstrap, "group.id": f"mirror-{uuid4().hex}", **harness.client()}
    target = {"bootstrap.servers": harness.target.bootstrap, **harness.target_client()}
    denials = Denials()
    logging.getLogger("barnabas").addHandler(denials)
    try:
        with MirrorMaker([source], target, whitelist="orders", commit_interval_ms=50) as running:
            wait_for(lambda: running.copied or running.wait(0) or denials.found, PATIENCE_S)
    finally:
        logging.getLogger("barnabas").removeHandler(denials)
    if denials.found:  # a mirror tries again, and says why
        raise BarnabasError(denials.found[0])


def produce_audited(harness: Harness, _folder: Path) -> None:
    with audited_producer(harness, harness.client()) as producer:
        producer.send("orders", b"audited").result(PATIENCE_S)


def read_audit(harness: Harness, _folder: Path) -> None:
    reader = AuditReader([secured(harness.bootstrap, harness.client())])
    try:
        reader.read()
    finally:
        reader.close()


def count_for_audit(harness: Harness, _folder: Path) -> None:
    auditor = Auditor(secured(harness.bootstrap, harness.client()), window_ms=60_000, interval_s=0.1, topics=["orders"])
    try:
        auditor.count_to_end()
    finally:
        auditor.close()


def serve_registry(harness: Harness, _folder: Path) -> None:
    server = RegistryServer(secured(harness.bootstrap, harness.client()), ("127.0.0.1", 0), topic="_schemas")
    try:
        url = server.start()
        client = RegistryClient(url, tries=1, timeout_s=60)
        client.register(f"s-{uuid4().hex}", "AVRO", '"int"')
    finally:
        server.stop()


def run_query(harness: Harness, _folder: Path) -> None:
    found = query("select count(*) as n from orders", harness.bootstrap, client=harness.client())
    assert found.to_pylist()[0]["n"] > 0


Run = Callable[[Harness, Path], None]
QUICK: dict[str, tuple[Run, list[str]]] = {
    "Producer": (produce, ["WRITE topic:orders"]),
    "Producer with transactions": (
        produce_transactionally,
        ["WRITE topic:orders", "WRITE transactional_id:app-1"],
    ),
    "Consumer of a group": (consume, ["READ topic:orders", "READ group:billing"]),
    "mirror": (mirror, ["READ topic:orders", "READ group:mirror-*", "target WRITE topic:orders"]),
    "registry": (
        serve_registry,
        [
            "CREATE topic:_schemas",
            "READ topic:_schemas",
            "WRITE topic:_schemas",
            "DESCRIBE_CONFIGS topic:_schemas",
            "WRITE transactional_id:barnabas-registry-_schemas",
        ],
    ),
    "audited producer": (
        produce_audited,
        ["WRITE topic:orders", "CREATE topic:_audit", "WRITE topic:_audit"],
    ),
    "audit": (read_audit, ["READ topic:_audit"]),
    "audit count": (
        count_for_audit,
        [
            "READ topic:orders",
            "READ group:_audit-broker",
            "CREATE topic:_audit",
            "WRITE topic:_audit",
            "WRITE transactional_id:_audit-broker-*",
        ],
    ),
    "query": (run_query, ["READ topic:orders"]),
}


SILENT = {
    ("mirror", "READ topic:orders"),  # a topic that the mirror may not see is none that its filter allows
    ("audited producer", "WRITE topic:_audit"),  # messages go out, and the log says that their counts do not
}
"""Rights without which a program does not fail."""


def without(rights: list[str], right: str) -> list[str]:
    return [each for each in rights if each != right]


@pytest.mark.parametrize(
    "program", [pytest.param(each, marks=[pytest.mark.slow] * (each == "registry")) for each in QUICK]
)
def test_program_works_with_its_rights_and_names_what_it_lacks_without_one(
    harness: Harness, tmp_path: Path, program: str
) -> None:
    run, rights = QUICK[program]
    harness.allow_only(*rights)
    run(harness, tmp_path)
    for right in rights:
        if right.startswith("CREATE") or (program, right) in SILENT:
            continue  # not needed for a topic that exists
        harness.allow_only(*without(rights, right))

        def is_denied() -> bool:
            with pytest.raises(BarnabasError) as caught:
                run(harness, tmp_path)
            assert re.search(f"{DENIED}|not done within|no answer in time", str(caught.value))
            return DENIED in str(caught.value)

        wait_for(is_denied)  # a slow machine may not answer in time
    harness.allow_only()


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_spark_reads_and_writes_with_its_rights_and_names_what_it_lacks(harness: Harness) -> None:
    with harness.admins()[0] as admin, suppress(BarnabasError):
        admin.create_topic("sink", partitions=1, replication_factor=1)
    secured_options = {f"kafka.{key}": value for key, value in harness.client().items()}
    secured_options["kafka.bootstrap.servers"] = harness.bootstrap
    with local_session("least", cores=1) as spark:

        def read() -> int:
            return int(spark.read.format("barnabas").options(**secured_options, subscribe="orders").load().count())

        def write() -> None:
            rows = spark.createDataFrame([("one",)], "value string")
            rows.write.format("barnabas").mode("append").options(**secured_options, topic="sink").save()

        works: list[tuple[Callable[[], object], list[str]]] = [
            (read, ["READ topic:orders"]),
            (write, ["WRITE topic:sink"]),
        ]
        for work, rights in works:
            harness.allow_only(*rights)
            work()
            for right in rights:
                harness.allow_only(*without(rights, right))
                with pytest.raises(Exception, match=DENIED):  # Spark's or ours
                    work()
    harness.allow_only()


def test_classic_clients_by_tls_are_known_by_their_certificates_and_need_the_same_rights(tmp_path: Path) -> None:
    leaf = certificate("localhost", "127.0.0.1", common_name="broker")
    own = certificate("program", common_name=USER)
    ca = write_pem(tmp_path, "ca.pem", pem(authority().cert_pem))
    config = {
        "listeners": "SSL://127.0.0.1:0,classic_ssl://127.0.0.1:0",
        "security.inter.broker.protocol": "SSL",
        "ssl.keystore.location": write_pem(tmp_path, "broker.pem", pem(leaf.private_key_pem) + chain(leaf)),
        "ssl.truststore.location": ca,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L",
        "authorizer.class.name": "StandardAuthorizer",
        "super.users": "User:broker",
        "log.flush.interval.messages": "1",
    }
    client = {"security.protocol": "SSL", "ssl.truststore.location": ca}
    admin_store = write_pem(tmp_path, "admin.pem", pem(leaf.private_key_pem) + chain(leaf))
    mine = {**client, "ssl.keystore.location": write_pem(tmp_path, "own.pem", pem(own.private_key_pem) + chain(own))}
    with Broker(storage="memory", config=config) as broker:
        kafka, classic = (each.partition("://")[2] for each in broker.listeners)
        with Admin(kafka, config={**client, "ssl.keystore.location": admin_store}) as admin:
            admin.create_acls([acl(USER, "CREATE", "topic:views"), acl(USER, "WRITE", "topic:views")])
            with ClassicProducer(f"classic://{classic}", config=mine) as producer:
                producer.send("views", b"one").result(PATIENCE_S)
            with (
                ClassicSimpleConsumer(f"classic://{classic}", config=mine) as consumer,
                pytest.raises(BarnabasError),
            ):
                consumer.fetch("views", 0, 0)
            admin.create_acls([acl(USER, "READ", "topic:views")])
            with ClassicSimpleConsumer(f"classic://{classic}", config=mine) as consumer:
                wait_for(lambda: [each.value for each in consumer.fetch("views", 0, 0)] == [b"one"], PATIENCE_S)


def test_table_of_the_page_has_the_rights_that_programs_need() -> None:
    page = PAGE.read_text()
    table = page[page.index("## The ACLs of each program") :]
    for program, (_, rights) in QUICK.items():
        row = " ".join(line for line in table.splitlines() if line.startswith("|") and f"`{program}`" in line)
        for right in rights:
            operation, _, resource = right.removeprefix("target ").partition(" ")
            assert re.search(rf"\b{operation}\b", row), (program, operation)
            kind = resource.partition(":")[0].replace("_", " ")
            assert kind == "topic" or kind in row, (program, kind)  # topics have a column of their own
