"""At least once: process first, commit afterwards. Nothing is lost; what was not committed yet comes again.

python examples/classic/at_least_once.py zookeeper://localhost:2181 views [setting=value ...]
"""

import sys

from barnabas import ConsumerConnector, ConsumerTimeout

COMMIT_EVERY = 100


def process(value: bytes) -> None:
    print(value.decode(), flush=True)


def main(where: str, topic: str, *settings: str) -> None:
    # Automatic commits would be too early: a message counts as consumed when it is handed out.
    config = {"groupid": "at-least-once", "autocommit.enable": "false", "consumer.timeout.ms": "10000"}
    config |= {name: value for name, _, value in (setting.partition("=") for setting in settings)}
    with ConsumerConnector(coordination=where, config=config) as connector:
        (stream,) = connector.create_message_streams({topic: 1})[topic]
        try:
            for number, message in enumerate(stream, start=1):
                process(message.value)
                if number % COMMIT_EVERY == 0:
                    connector.commit_offsets()
        except ConsumerTimeout:
            connector.commit_offsets()


if __name__ == "__main__":
    main(*sys.argv[1:])
