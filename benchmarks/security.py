"""Produce, fetch and SCRAM logins over TLS compared with Apache Kafka: the same certificate, cipher suite and client.

Rounds take turns between the two. Rates are those of the best round, the CPU is that of the server's process in its
best round.
"""

import ssl
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import psutil
from confluent_kafka import Consumer, TopicPartition
from harness import Result, broker, librdkafka_rate
from kafka_cluster import KafkaUnavailable, kafka_cluster

from barnabas.adapters.system import SystemEntropy
from barnabas.core.security.sasl.client import new_nonce
from barnabas.core.security.sasl.scram import ScramClient
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.values import Secret
from barnabas.testing.security import make_certificates

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

sasl: Any = import_module("support.sasl_connection")

MESSAGES = 300_000
LOGINS = 300
THREADS = 4
ROUNDS = 3
WARM_UP_ROUNDS = 2
"""Rounds that do not count: a Java machine compiles during them."""
TOPIC = "bench"
OURS, KAFKA = "Barnabas", "Apache Kafka"
MECHANISM = "SCRAM-SHA-256"
USER, PASSWORD = "admin", "secret-of-admin"
MODULE = "org.apache.kafka.common.security"


class Server:
    """A server with a SASL_SSL listener."""

    def __init__(self, bootstrap: str, process: psutil.Process, authority: Path) -> None:
        self.bootstrap = bootstrap
        self.process = process
        self.authority = authority
        self.client: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(authority),
        }

    def cpu_seconds(self) -> float:
        times = self.process.cpu_times()
        return float(times.user + times.system)


def settings_of(folder: Path) -> dict[str, str]:
    """Return the settings that both servers have."""
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.enabled.protocols": "TLSv1.3",
        "sasl.enabled.mechanisms": f"PLAIN,{MECHANISM}",
    }


@contextmanager
def ours(folder: Path) -> Iterator[Server]:
    settings = settings_of(folder) | {
        "sasl.scram.bootstrap.users": f"{MECHANISM}=[name={USER},password={PASSWORD}]",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": (
            f'{MODULE}.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}" '
            f'user_{USER}="{PASSWORD}";'
        ),
    }
    each = [f"{key}={value}" for key, value in settings.items()]
    with broker(None, *each, scheme="sasl_ssl") as running:
        yield Server(running.bootstrap, running.process, folder / "ca.pem")


@contextmanager
def kafka(folder: Path) -> Iterator[Server]:
    settings = settings_of(folder) | {
        "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{MODULE}.scram.ScramLoginModule required;",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{MODULE}.plain.PlainLoginModule required user_x="y";',
        "group.initial.rebalance.delay.ms": "0",
    }
    users = [f"{MECHANISM}=[name={USER},password={PASSWORD},iterations=4096]"]
    with kafka_cluster(folder, 1, protocol="SASL_SSL", settings=settings, users=users) as (bootstrap, pids):
        yield Server(bootstrap, psutil.Process(pids[0]), folder / "ca.pem")


def produced(server: Server) -> float:
    return librdkafka_rate(server.client, TOPIC, MESSAGES)


def fetched(server: Server) -> float:
    consumer = Consumer({**server.client, "group.id": "bench", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    consumer.consume(1, 30)
    started, got = time.perf_counter(), 0
    while got < MESSAGES - 1:
        got += len(consumer.consume(10_000, 10))
    rate = got / (time.perf_counter() - started)
    consumer.close()
    return rate


def logged_in(server: Server) -> float:
    """Logins per second of clients that connect, authenticate and leave; the salted password is known to them."""
    context = ssl.create_default_context(cafile=str(server.authority))
    entropy = SystemEntropy()
    salted: dict[tuple[bytes, int], Secret[bytes]] = {}

    def log_in(_number: int) -> None:
        with sasl.SaslConnection(server.bootstrap) as connection:
            connection.socket = context.wrap_socket(connection.socket, server_hostname="127.0.0.1")
            client = ScramClient(MECHANISM, USER, Secret(PASSWORD), new_nonce(entropy), salted=salted)
            if connection.log_in(client).error is not ErrorCode.NONE:
                raise RuntimeError("the login failed")

    log_in(0)
    started = time.perf_counter()
    with ThreadPoolExecutor(THREADS) as threads:
        list(threads.map(log_in, range(LOGINS)))
    return LOGINS / (time.perf_counter() - started)


WHAT = {"produce": (produced, MESSAGES), "fetch": (fetched, MESSAGES), "SCRAM logins": (logged_in, LOGINS)}


def measure() -> list[Result]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="barnabas-bench-")))
        make_certificates(folder)
        servers: dict[str, Server] = {OURS: stack.enter_context(ours(folder))}
        try:
            servers[KAFKA] = stack.enter_context(kafka(folder))
        except KafkaUnavailable as error:
            print(f"security: without Apache Kafka: {error}")
        rates: dict[tuple[str, str], list[float]] = {}
        cpu: dict[tuple[str, str], list[float]] = {}
        for number in range(-WARM_UP_ROUNDS, ROUNDS):
            for what, (run, count) in WHAT.items():
                for name in servers if number % 2 else reversed(servers):
                    before = servers[name].cpu_seconds()
                    rate = run(servers[name])
                    used = (servers[name].cpu_seconds() - before) / count * 1e6
                    if number >= 0:
                        rates.setdefault((what, name), []).append(rate)
                        cpu.setdefault((what, name), []).append(used)
        return [each for what in WHAT for each in _results(what, servers, rates, cpu)]


def _results(
    what: str,
    servers: Mapping[str, Server],
    rates: Mapping[tuple[str, str], list[float]],
    cpu: Mapping[tuple[str, str], list[float]],
) -> Iterator[Result]:
    best = {name: max(rates[what, name]) for name in servers}
    least = {name: min(cpu[what, name]) for name in servers}
    if what == "SCRAM logins":
        yield Result("SCRAM logins over TLS", best[OURS], "1/s", 200)
    if KAFKA in servers:
        details = {f"{name} 1/s": rate for name, rate in best.items()}
        yield Result(f"{what} over TLS: rate / Apache Kafka's", best[OURS] / best[KAFKA], "", 1.0, details=details)
        details = {f"{name} us": used for name, used in least.items()}
        yield Result(
            f"{what} over TLS: CPU of the broker / Apache Kafka's",
            least[OURS] / least[KAFKA],
            "",
            1.0,
            at_least=False,
            details=details,
        )


if __name__ == "__main__":
    for result in measure():
        print(result)
