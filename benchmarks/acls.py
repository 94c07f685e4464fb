"""Produce with no authorizer, with one and no ACLs, and with 1,000 ACLs: the cost of authorization, in one run.

librdkafka sends large batches; the bare client sends the smallest produce request again and again, in which the check
weighs most.
"""

import time
from collections.abc import Sequence
from contextlib import ExitStack

from harness import BareClient, Result, RunningBroker, broker, librdkafka_rate, produce_frame

from barnabas import Admin
from barnabas.core.message.batch_writer import encode_batch
from barnabas.core.message.message import Message
from barnabas.ports.broker_api.acls import AclBinding, PatternType, ResourceType
from barnabas.ports.broker_api.operations import Operation

MESSAGES = 400_000
SMALL_REQUESTS = 10_000
ROUNDS = 5
ACLS = 1_000
TOPIC = "bench"
AUTHORIZER = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"
EVERYONE = "allow.everyone.if.no.acl.found=true"
NONE, EMPTY, FULL = "no authorizer", "no ACLs", f"{ACLS:,} ACLs"


def acls() -> Sequence[AclBinding]:
    """Return the right to write the topic, and others for users, topics and prefixes that match nothing here, or the
    topic."""
    mine = [
        AclBinding(
            resource_type=ResourceType.TOPIC, resource_name=TOPIC, principal="User:ANONYMOUS", operation=operation
        )
        for operation in (Operation.WRITE, Operation.CREATE)
    ]
    others = [
        AclBinding(
            resource_type=ResourceType.TOPIC,
            resource_name=(f"topic-{number}", f"be{number}", "b")[number % 3],
            pattern_type=PatternType.LITERAL if number % 3 == 0 else PatternType.PREFIXED,
            principal=f"User:user-{number}",
            operation=Operation.READ if number % 2 else Operation.WRITE,
        )
        for number in range(ACLS - len(mine))
    ]
    return [*mine, *others]


def _large(running: RunningBroker) -> tuple[float, float]:
    before = running.cpu_seconds()
    rate = librdkafka_rate({"bootstrap.servers": running.bootstrap}, TOPIC, MESSAGES)
    return rate, running.cpu_seconds() - before


def _small(running: RunningBroker) -> tuple[float, float]:
    batch = bytes(encode_batch([Message(value=bytes(10))], now_ms=1_700_000_000_000))
    frame = produce_frame(TOPIC, 0, batch)
    client = BareClient(running.host, running.port)
    try:
        for _ in range(100):
            client.exchange(frame)
        before, started = running.cpu_seconds(), time.perf_counter()
        for _ in range(SMALL_REQUESTS):
            client.exchange(frame)
        return SMALL_REQUESTS / (time.perf_counter() - started), running.cpu_seconds() - before
    finally:
        client.close()


def measure() -> list[Result]:
    with ExitStack() as stack:
        settings: dict[str, tuple[str, ...]] = {NONE: (), EMPTY: (AUTHORIZER, EVERYONE), FULL: (AUTHORIZER, EVERYONE)}
        brokers = {
            name: stack.enter_context(broker(None, "num.partitions=1", *each)) for name, each in settings.items()
        }
        for running in brokers.values():
            with Admin(running.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=1)
        with Admin(brokers[FULL].bootstrap) as admin:
            admin.create_acls(acls())
        for running in brokers.values():
            librdkafka_rate({"bootstrap.servers": running.bootstrap}, TOPIC, MESSAGES // 10)
        results = []
        for what, measured, cost in (("librdkafka produce", _large, 0.02), ("smallest produce requests", _small, 0.05)):
            figures: dict[str, list[tuple[float, float]]] = {name: [] for name in brokers}
            for number in range(ROUNDS):
                names = list(brokers)
                for name in names if number % 2 else reversed(names):
                    figures[name].append(measured(brokers[name]))
            rates = {name: max(rate for rate, _ in each) for name, each in figures.items()}
            cpu = {name: min(seconds for _, seconds in each) for name, each in figures.items()}
            for name in (EMPTY, FULL):
                results.append(
                    Result(
                        f"{what}: {name} / {NONE}",
                        rates[name] / rates[NONE],
                        "",
                        1 - cost,
                        details={f"{each} 1/s": rate for each, rate in rates.items()},
                    )
                )
                results.append(
                    Result(
                        f"{what}, CPU of the broker: {name} / {NONE}",
                        cpu[name] / cpu[NONE],
                        "",
                        1 + cost,
                        at_least=False,
                        details={f"{each} s": seconds for each, seconds in cpu.items()},
                    )
                )
    return results
