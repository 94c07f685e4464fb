"""A callback handler that writes down every call."""

from collections.abc import Sequence
from typing import Any

from barnabas.core.client.producer.handlers import CallbackHandler, ProducerItem


class Notes(CallbackHandler):
    """Writes down every call."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def before_enqueue(self, item: ProducerItem) -> ProducerItem:
        self.calls.append(("before_enqueue", item.value))
        return item

    def after_enqueue(self, item: ProducerItem, added: bool) -> None:
        self.calls.append(("after_enqueue", item.value, added))

    def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        self.calls.append(("after_dequeue", None if item is None else item.value))
        return super().after_dequeue(item)

    def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
        self.calls.append(("before_send", [item.value for item in items]))
        return items

    def last_batch_before_close(self) -> Sequence[ProducerItem]:
        self.calls.append(("last_batch",))
        return [ProducerItem(topic="t", value=b"last")]

    def close(self) -> None:
        self.calls.append(("close",))
