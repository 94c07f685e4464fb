"""librdkafka producing 200-byte messages into the broker, against librdkafka into its own mock broker."""

from harness import Result, RunningBroker, broker, librdkafka_rate

from barnabas import Admin

MESSAGES = 1_000_000
TOPIC = "bench"


def _into(running: RunningBroker) -> tuple[float, float]:
    before = running.cpu_seconds()
    rate = librdkafka_rate({"bootstrap.servers": running.bootstrap}, TOPIC, MESSAGES)
    return rate, (running.cpu_seconds() - before) / MESSAGES * 500_000


def measure() -> list[Result]:
    with broker(None, "num.partitions=1") as running:
        with Admin(running.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=1)
        librdkafka_rate({"bootstrap.servers": running.bootstrap}, TOPIC, MESSAGES // 10)
        ours, mocks = [], []
        for _ in range(3):
            mocks.append(librdkafka_rate({"test.mock.num.brokers": 1}, TOPIC, MESSAGES))
            ours.append(_into(running))
        rate = max(r for r, _ in ours)
        mock = max(mocks)
    details = {"ours msg/s": rate, "mock msg/s": mock}
    return [
        Result("librdkafka produce: broker / its own mock", rate / mock, "", 0.8, details=details),
        Result("broker CPU per 500,000 messages/s", min(c for _, c in ours), "cores", 0.35, at_least=False),
    ]
