"""At most once: commit first, process afterwards. Nothing comes twice; what was committed but not processed is lost.

python examples/classic/at_most_once.py zookeeper://localhost:2181 views [setting=value ...]
"""

import sys

from barnabas import BrokerPartition, ConsumerConnector, ConsumerTimeout, MessageStream, StreamMessage

AT_ONCE = 100


def process(value: bytes) -> None:
    print(value.decode(), flush=True)


def take(stream: MessageStream) -> list[StreamMessage]:
    """Waits for the first; then what is there, at most AT_ONCE messages."""
    batch = [next(stream)]
    while len(batch) < AT_ONCE and (message := stream.poll()) is not None:
        batch.append(message)
    return batch


def main(where: str, topic: str, *settings: str) -> None:
    config = {"groupid": "at-most-once", "autocommit.enable": "false", "consumer.timeout.ms": "10000"}
    config |= {name: value for name, _, value in (setting.partition("=") for setting in settings)}
    done: dict[BrokerPartition, int] = {}
    with ConsumerConnector(coordination=where, config=config, shallowiterator_enable=True) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        try:
            while True:
                batch = take(stream)
                committed = connector.commit_offsets()
                for message in batch:
                    # What is not in there was taken away from us: the next owner gets the message.
                    if done.get(message.place, -1) < message.offset <= committed.get((topic, message.place), -1):
                        done[message.place] = message.offset
                        for value in connector.values(message):  # one, or those of a compressed batch
                            process(value)
        except ConsumerTimeout:
            pass


if __name__ == "__main__":
    main(*sys.argv[1:])
