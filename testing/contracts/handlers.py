"""Contract suite for event handlers and callback handlers: they invent no message and lose none silently."""

from collections.abc import Sequence

from ...core.client.producer.handlers import CallbackHandler, EventHandler, ProducerItem


def some_items(count: int = 5) -> list[ProducerItem]:
    return [ProducerItem(topic="topic", value=b"%d" % n, token=object()) for n in range(count)]


class CallbackHandlerContract:
    """Inherit, and give `make_callbacks`; for handlers that may change or drop items, but not multiply their tokens."""

    def make_callbacks(self) -> CallbackHandler:
        raise NotImplementedError

    def test_before_enqueue_gives_an_item(self) -> None:
        assert isinstance(self.make_callbacks().before_enqueue(some_items(1)[0]), ProducerItem)

    def test_a_token_leaves_the_hooks_at_most_once(self) -> None:
        handler, out = self.make_callbacks(), []
        items = some_items(20)
        for item in items:
            handler.after_enqueue(item, True)
            out += list(handler.after_dequeue(item))
        out += list(handler.after_dequeue(None))
        out = list(handler.before_send(tuple(out)))
        out += list(handler.last_batch_before_close())
        handler.close()
        tokens = [id(item.token) for item in out if item.token is not None]
        assert len(tokens) == len(set(tokens))
        assert set(tokens) <= {id(item.token) for item in items}

    def test_an_empty_batch_stays_a_sequence(self) -> None:
        assert isinstance(list(self.make_callbacks().before_send(())), list)


class EventHandlerContract:
    """Inherit, and give `make_events`."""

    def make_events(self) -> EventHandler:
        raise NotImplementedError

    def test_a_token_is_sent_at_most_once(self) -> None:
        sent: list[ProducerItem] = []

        def send(items: Sequence[ProducerItem]) -> None:
            sent.extend(items)

        handler, items = self.make_events(), some_items(20)
        handler.handle(items, send)
        handler.close()
        tokens = [id(item.token) for item in sent if item.token is not None]
        assert len(tokens) == len(set(tokens))
        assert set(tokens) <= {id(item.token) for item in items}
