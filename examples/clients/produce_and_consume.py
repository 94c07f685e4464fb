"""A broker in this process, a producer and a consumer: nothing to install, nothing to start.

python examples/clients/produce_and_consume.py
"""

from barnabas import Broker, Consumer, Producer


def main() -> None:
    with Broker(storage="memory") as broker:
        with Producer(broker, encoder="json", key_encoder="string") as producer:
            for number in range(5):
                producer.send("views", {"page": f"/page-{number}"}, key=f"user-{number % 2}")
        with Consumer(broker, decoder="json", key_decoder="string") as consumer:
            consumer.assign("views", position="earliest")
            for message in consumer.messages(stop_at_end=True):
                print(message.partition, message.offset, message.key, message.value)


if __name__ == "__main__":
    main()
