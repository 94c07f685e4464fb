"""Fetching committed records compared with fetching all, from one log of transactions of which every tenth was aborted.

The client walks over the batches of both. Large chunks cost what the socket costs, small ones what the broker does.
"""

import time

from confluent_kafka import Producer
from harness import MESSAGE_BYTES, BareClient, Result, broker, fetch_frame, next_offset, records_of

from barnabas import Admin

TOPIC, PLAIN = "bench", "plain"
TRANSACTIONS = 400
MESSAGES = 500
"""The number of messages in a transaction."""
CHUNKS = {"1 MB": (1 << 20, 2 << 30), "16 KB": (1 << 14, 200 << 20)}
"""Bytes of a fetch, and of all."""
FETCHES_IN_TURN = 16
GOAL = 0.95


def _fill(bootstrap: str) -> None:
    with Admin(bootstrap) as admin:
        for topic in (TOPIC, PLAIN):
            admin.create_topic(topic, partitions=1)
    settings = {"bootstrap.servers": bootstrap, "linger.ms": 1, "transactional.id": "bench", "batch.size": 16_384}
    producer = Producer(settings)
    producer.init_transactions(60)
    payload = bytes(MESSAGE_BYTES)
    for number in range(TRANSACTIONS):
        producer.begin_transaction()
        for _ in range(MESSAGES):
            producer.produce(TOPIC, payload, partition=0)
        if number % 10:
            producer.commit_transaction(60)
        else:
            producer.abort_transaction(60)
    plain = Producer({"bootstrap.servers": bootstrap, "linger.ms": 1, "batch.size": 16_384})
    for _ in range(TRANSACTIONS):
        for _ in range(MESSAGES):
            plain.produce(PLAIN, payload, partition=0)
        plain.flush(60)


class _Reading:
    """Goes through the log round and round, a few fetches at a time."""

    def __init__(self, client: BareClient, topic: str, isolation: int, chunk: int) -> None:
        self._client, self._topic, self._isolation, self._chunk = client, topic, isolation, chunk
        self._offset = 0
        self.bytes, self.seconds = 0, 0.0

    @property
    def rate(self) -> float:
        return self.bytes / self.seconds / 2**20

    def fetch_repeatedly(self, fetches: int) -> None:
        started = time.perf_counter()
        for _ in range(fetches):
            frame = fetch_frame(self._topic, 0, self._offset, self._chunk, self._isolation)
            records = records_of(self._client.exchange(frame), self._topic)
            self.bytes += len(records)
            self._offset = next_offset(records) if len(records) else 0
        self.seconds += time.perf_counter() - started


def measure() -> list[Result]:
    results = []
    with broker(None, "transaction.state.log.num.partitions=1") as running:
        _fill(running.bootstrap)
        client = BareClient(running.host, running.port)
        for name, (chunk, total) in CHUNKS.items():
            for topic, what in ((TOPIC, "with aborted ones"), (PLAIN, "without transactions")):
                everything, committed = (_Reading(client, topic, isolation, chunk) for isolation in (0, 1))
                while committed.bytes < total:  # in turns, so that other work on the machine hits both
                    for reading in (everything, committed, committed, everything):
                        reading.fetch_repeatedly(FETCHES_IN_TURN)
                details = {"committed MB/s": committed.rate, "all MB/s": everything.rate}
                title = f"fetch of committed records / of all, {name}, {what}"
                results.append(Result(title, committed.rate / everything.rate, "", GOAL, details=details))
        client.close()
    return results


if __name__ == "__main__":
    for result in measure():
        print(result)
