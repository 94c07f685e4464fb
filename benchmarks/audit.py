"""Cost of the audit: an audited producer compared with a plain one, and the speed of an auditor."""

import time

from harness import MESSAGE_BYTES, Result, broker

from barnabas import Admin, Consumer, Producer
from barnabas.audit.auditor import Auditor

MANY = 1_500_000
AT_ONCE = 2000
SINGLE = 600_000
KEYED = 150_000
READ = 300_000
ROUNDS = 3
GOAL = 0.8


def _rate(bootstrap: str, topic: str, kind: str, audited: bool) -> float:
    values = [bytes(MESSAGE_BYTES)] * AT_ONCE
    handler = "audit" if audited else None
    with Producer(bootstrap, callback_handler=handler) as producer:
        producer.send(topic, b"first").result(30)
        started = time.perf_counter()
        if kind == "many":
            for _ in range(MANY // AT_ONCE):
                producer.send_many(topic, values)
            count = MANY
        elif kind == "single":
            for _ in range(SINGLE):
                producer.send(topic, values[0])
            count = SINGLE
        else:
            for number in range(KEYED):
                producer.send(topic, values[0], key=b"%d" % (number % 1000))
            count = KEYED
        producer.flush()
        return count / (time.perf_counter() - started)


def _producing(bootstrap: str, topic: str, kind: str, name: str) -> Result:
    plain, audited = [], []
    for _ in range(ROUNDS):
        plain.append(_rate(bootstrap, topic, kind, False))
        audited.append(_rate(bootstrap, topic, kind, True))
    details = {"audited msg/s": max(audited), "plain msg/s": max(plain)}
    return Result(f"{name}: audited / plain producer", max(audited) / max(plain), "", GOAL, details=details)


def _counting(bootstrap: str, topic: str) -> Result:
    auditor = Auditor(bootstrap, topics=[topic])
    started = time.perf_counter()
    auditor.count_to_end()
    rate = auditor.counted / (time.perf_counter() - started)
    auditor.close()
    return Result("an auditor counts", rate / 1000, "k msg/s")


def _reading(bootstrap: str) -> Result:
    """Return messages per second of CPU, since brokers on the same machine take their share."""
    rates: dict[str, float] = {}
    for topic in ("plain", "audited"):
        with Producer(bootstrap, callback_handler="audit" if topic == "audited" else None) as producer:
            for _ in range(READ // AT_ONCE):
                producer.send_many(topic, [bytes(MESSAGE_BYTES)] * AT_ONCE)
        for _ in range(ROUNDS):
            with Consumer(bootstrap) as consumer:
                consumer.assign(topic, position="earliest")
                started = time.process_time()
                count = sum(1 for _ in consumer.messages(stop_at_end=True))
                rates[topic] = max(rates.get(topic, 0), count / (time.process_time() - started))
    details = {f"{name} msg/CPU s": rate for name, rate in rates.items()}
    return Result("reading: audited / plain messages", rates["audited"] / rates["plain"], details=details)


def measure() -> list[Result]:
    with broker(None, "num.partitions=1") as running:
        with Admin(running.bootstrap) as admin:
            for topic in ("bench", "plain", "audited"):
                admin.create_topic(topic, partitions=1)
        kinds = {"many": "send_many", "single": "send", "keyed": "send with keys"}
        results = [_producing(running.bootstrap, "bench", kind, name) for kind, name in kinds.items()]
        return [*results, _counting(running.bootstrap, "bench"), _reading(running.bootstrap)]
