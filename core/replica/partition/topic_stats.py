"""The counters of messages and bytes by topic."""

from ....ports.metrics import Counter, Metrics
from ....ports.values import frozen


@frozen
class TopicStats:
    """The counters of one topic."""

    messages_in: Counter
    bytes_in: Counter
    bytes_out: Counter


class BrokerTopicStats:
    """The counters of all topics, by Kafka's names. Owner thread only."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._stats: dict[str, TopicStats] = {}

    def of(self, topic: str) -> TopicStats:
        """Return the counters of a topic; they are created at the first call."""
        stats = self._stats.get(topic)
        if stats is None:
            counter = self._metrics.counter
            stats = self._stats[topic] = TopicStats(
                counter("kafka_server_brokertopicmetrics_messagesin_total", "Messages appended.", topic=topic),
                counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes appended.", topic=topic),
                counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes read by consumers.", topic=topic),
            )
        return stats

    def forget(self, topic: str) -> None:
        """Forget the counters of a deleted topic, and remove all metrics that name it."""
        self._stats.pop(topic, None)
        self._metrics.forget(topic=topic)
