"""Exactly once: results and offsets are stored in one transaction, here of SQLite. Counts how often pages were viewed.

python examples/classic/exactly_once.py zookeeper://localhost:2181 views views.db [setting=value ...]

Where a partition begins is what the database says; the group's own offsets are not used.
"""

import sqlite3
import sys
from collections import Counter
from collections.abc import Callable, Iterable

from barnabas import BrokerPartition, ConsumerConnector, ConsumerTimeout, MessageStream, StreamMessage

AT_ONCE = 100
SCHEMA = """
CREATE TABLE IF NOT EXISTS views (page TEXT PRIMARY KEY, count INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS offsets (topic TEXT, place TEXT, offset INTEGER NOT NULL, PRIMARY KEY (topic, place));
"""
# Changes nothing when the message was counted: a previous owner of the partition may be late with its last ones.
MOVE_ON = """
INSERT INTO offsets VALUES (?, ?, ?)
ON CONFLICT (topic, place) DO UPDATE SET offset = excluded.offset WHERE offset < excluded.offset
"""
COUNT = "INSERT INTO views VALUES (?, ?) ON CONFLICT (page) DO UPDATE SET count = count + excluded.count"


class Results:
    """The views of each page, and how far each partition was counted."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._connection = sqlite3.connect(file, timeout=60, isolation_level=None)
        self._connection.executescript(SCHEMA)

    def offset(self, topic: str, place: BrokerPartition) -> int | None:
        """Return the offset at which to continue. A thread of the connector asks, so it has a connection of its own."""
        connection = sqlite3.connect(self._file, timeout=60)
        try:
            query = "SELECT offset FROM offsets WHERE topic = ? AND place = ?"
            row = connection.execute(query, (topic, str(place))).fetchone()
        finally:
            connection.close()
        return int(row[0]) if row else None

    def count(self, batch: Iterable[StreamMessage], values: Callable[[StreamMessage], list[bytes]]) -> None:
        """All of it, or nothing. `values` opens a compressed batch: it is one message, as it has one offset."""
        with self._connection as connection:
            connection.execute("BEGIN IMMEDIATE")
            for message in batch:
                moved = connection.execute(MOVE_ON, (message.topic, str(message.place), message.offset))
                if moved.rowcount:
                    connection.executemany(COUNT, Counter(page.decode() for page in values(message)).items())


def take(stream: MessageStream) -> list[StreamMessage]:
    """Waits for the first; then what is there, at most AT_ONCE messages."""
    batch = [next(stream)]
    while len(batch) < AT_ONCE and (message := stream.poll()) is not None:
        batch.append(message)
    return batch


def main(where: str, topic: str, file: str, *settings: str) -> None:
    results = Results(file)
    config = {"groupid": "exactly-once", "autocommit.enable": "false", "consumer.timeout.ms": "10000"}
    config |= {name: value for name, _, value in (setting.partition("=") for setting in settings)}
    with ConsumerConnector(
        coordination=where, config=config, shallowiterator_enable=True, start_offsets=results.offset
    ) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        try:
            while True:
                results.count(take(stream), connector.values)
        except ConsumerTimeout:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
