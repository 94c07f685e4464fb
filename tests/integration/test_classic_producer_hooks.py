"""Every classic hook point, with the producer's threads, against a scripted broker."""

from collections.abc import Iterator, Sequence

import pytest
from support.classic_fake import FakeClassicBroker, listed, queued
from support.hook_notes import Notes
from support.waiting import PATIENCE_S, wait_for

from barnabas import Message
from barnabas.core.client.errors import HookError, QueueFull
from barnabas.core.client.producer.handlers import CallbackHandler, EventHandler, ProducerItem, SendItems
from barnabas.ports.errors import ApiError, ConfigError


@pytest.fixture
def broker() -> Iterator[FakeClassicBroker]:
    with FakeClassicBroker() as made:
        yield made


class RecordingEventHandler(EventHandler):
    def __init__(self, notes: Notes) -> None:
        self.notes = notes

    def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
        self.notes.calls.append(("handle", [item.value for item in items]))
        send(items)

    def close(self) -> None:
        self.notes.calls.append(("handler close",))


def test_every_hook_is_called_in_its_order(broker: FakeClassicBroker) -> None:
    notes = Notes()
    settings = {
        "queue_time": 60_000,
        "batch_size": 2,
        "callback_handler": notes,
        "event_handler": RecordingEventHandler(notes),
    }
    with queued(broker, **settings) as producer:
        handles = [producer.send("t", value) for value in (b"1", b"2")]
        assert [handle.result(PATIENCE_S).offset for handle in handles] == [-1, -1]
        handles.append(producer.send("u", b"3"))
    calls = notes.calls
    sending = [call for call in calls if call[0] in ("before_enqueue", "after_enqueue")]
    assert sending == [(name, v, *more) for v in (b"1", b"2", b"3")
                       for name, more in (("before_enqueue", ()), ("after_enqueue", (True,)))]  # fmt: skip
    assert [call for call in calls if call not in sending] == [
        ("after_dequeue", b"1"),
        ("after_dequeue", b"2"),
        ("before_send", [b"1", b"2"]),
        ("handle", [b"1", b"2"]),
        ("after_dequeue", b"3"),
        ("after_dequeue", None),
        ("last_batch",),
        ("before_send", [b"3", b"last"]),
        ("handle", [b"3", b"last"]),
        ("handler close",),
        ("close",),
    ]
    wait_for(lambda: broker.values() == [b"1", b"2", b"3", b"last"])
    assert [each.topic for each in broker.sets()] == ["t", "u", "t"]
    assert len(broker.frames) == 2, "a batch is one request"
    assert producer.delivered == 4


def test_hooks_see_rejected_message_of_full_queue(broker: FakeClassicBroker) -> None:
    class Stuck(Notes):
        def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
            wait_for(lambda: ("after_enqueue", b"3", False) in self.calls)
            return super().after_dequeue(item)

    notes = Stuck()
    with queued(broker, callback_handler=notes, queue_size=2, queue_time=60_000) as producer:
        producer.send("t", b"1")
        producer.send("t", b"2")
        with pytest.raises(QueueFull):
            producer.send("t", b"3")
    wait_for(lambda: broker.values() == [b"1", b"2", b"last"])


def test_hooks_may_change_and_drop_and_an_event_handler_may_keep(broker: FakeClassicBroker) -> None:
    class Changes(CallbackHandler):
        def before_enqueue(self, item: ProducerItem) -> ProducerItem:
            if item.value == b"bad":
                raise ValueError("boom")
            item.topic, item.partition = "changed", 3
            return item

        def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
            return [item for item in items if item.value != b"dropped"]

    class Keeps(EventHandler):
        def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
            send([item for item in items if item.value != b"kept"])

    with queued(broker, callback_handler=Changes(), event_handler=Keeps()) as producer:
        bad = producer.send("t", b"bad")
        handles = producer.send_many("t", [b"1", b"dropped", b"kept"])
        producer.flush(PATIENCE_S)
        assert handles.result(PATIENCE_S) == 3
        with pytest.raises(HookError, match="boom"):
            bad.result(0)
        too_large = producer.send("t", bytes(2_000_000))
        producer.flush(PATIENCE_S)
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            too_large.result(0)
    wait_for(lambda: [(s.topic, s.partition, s.values) for s in broker.sets()] == [("changed", 3, [b"1"])])


def test_handlers_by_name_and_sync_with_hooks(broker: FakeClassicBroker) -> None:
    with listed(broker, event_handler="default", callback_handler="default") as producer:
        assert producer.send("t", b"1").done
        assert producer.send_many("t", [b"2", Message(b"3", b"k")]).done
    wait_for(lambda: broker.values() == [b"1", b"2", b"3"])
    with pytest.raises(ConfigError, match="unknown event handler"):
        listed(broker, event_handler="no such")
