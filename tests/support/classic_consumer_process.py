"""A classic consumer in a process of its own, that writes down what happens to it.

Run as a script with one argument, JSON: `where`, `topics` (topic → streams) or `whitelist`, `settings`. Each line on
standard output is a JSON list: what, `time.monotonic()` (one clock for all processes of a machine), and

    "message"  topic, place, next offset, value     handed out by a stream
    "take"     topic, place, null                   the partition is ours from now on
    "give"     topic, place, consumed offset        no message of the partition follows
    "expired"                                       it learnt that its session had ended
    "error"    text                                 raised by a stream, which is iterated on
    "ready"                                         the streams have been created
    "end"                                           orderly, after SIGTERM
"""

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from typing import Any
from unittest.mock import patch

from barnabas.app.clients.classic import consumer_connector
from barnabas.app.clients.classic.streams import MessageStream
from barnabas.core.classic.consumer.consumer import ClassicConsumer, ConsumerOutside
from barnabas.core.classic.registry.group import Owned
from barnabas.core.classic.registry.layout import ClassicBroker
from barnabas.ports.coordination import SessionState
from barnabas.ports.errors import BarnabasError


def note(what: str, *details: object, at: float | None = None) -> None:
    """One write, so that the lines of threads do not mix, and none is torn by a kill."""
    os.write(1, json.dumps([what, time.monotonic() if at is None else at, *details]).encode() + b"\n")


def note_state(state: SessionState) -> None:
    if state is SessionState.EXPIRED:
        note("expired")


class NotedConsumer(ClassicConsumer):
    """A consumer that notes the partitions it owns."""

    def __init__(self, outside: ConsumerOutside, *arguments: Any, **named: Any) -> None:
        outside.coordination.add_session_listener(note_state)
        super().__init__(outside, *arguments, **named)

    def give_up(self, owned: Collection[Owned]) -> dict[Owned, int]:
        offsets = super().give_up(owned)
        at = time.monotonic()
        for topic, place in owned:
            note("give", topic, str(place), offsets.get((topic, place)), at=at)
        return offsets

    def add_partitions(
        self, gained: Mapping[Owned, str], starts: Mapping[Owned, int], brokers: Mapping[int, ClassicBroker]
    ) -> None:
        at = time.monotonic()
        for topic, place in gained:
            note("take", topic, str(place), None, at=at)
        super().add_partitions(gained, starts, brokers)

    def stop(self, stopped: Callable[[BaseException | None], None]) -> None:
        owned = dict(self._partitions)
        at = time.monotonic()  # from here on another thread may release them, and others take them
        super().stop(stopped)
        for (topic, place), partition in owned.items():
            note("give", topic, str(place), partition.consumed, at=at)


def read(stream: MessageStream) -> None:
    while True:
        try:
            for message in stream:
                note("message", message.topic, str(message.place), message.offset, message.value.decode())
            return
        except BarnabasError as error:
            note("error", f"{type(error).__name__}: {error}")


def main(config: Mapping[str, Any]) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # in every thread: waited for below
    with patch.object(consumer_connector, "ClassicConsumer", NotedConsumer):
        connector = consumer_connector.ConsumerConnector(coordination=config["where"], **config["settings"])
        if "whitelist" in config:
            streams = connector.create_message_streams_by_filter(whitelist=config["whitelist"])
        else:
            streams = [
                each for several in connector.create_message_streams(config["topics"]).values() for each in several
            ]
    readers = [threading.Thread(target=read, args=(stream,)) for stream in streams]
    for reader in readers:
        reader.start()
    note("ready")
    signal.sigwait({signal.SIGTERM})
    connector.shutdown()
    for reader in readers:
        reader.join()
    note("end")


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
