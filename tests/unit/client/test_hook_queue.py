"""The classic hook points, in their order."""

from collections.abc import Sequence
from typing import Any

from support.hook_notes import Notes

from barnabas.core.client.errors import HookError
from barnabas.core.client.producer.handlers import CallbackHandler, EventHandler, ProducerItem, SendItems
from barnabas.core.client.producer.hook_queue import IDLE_MS, HookQueue
from barnabas.ports.errors import BarnabasError


class Sink:
    """Notes where items end."""

    def __init__(self) -> None:
        self.routed: list[Any] = []
        self.lost: list[tuple[Any, BarnabasError]] = []
        self.elsewhere: list[Any] = []
        self.reports: list[str] = []
        self.room = True

    def route(self, item: ProducerItem) -> None:
        self.routed.append(item.value)

    def failed(self, item: ProducerItem, error: BarnabasError) -> None:
        self.lost.append((item.value, error))

    def handled(self, item: ProducerItem) -> None:
        self.elsewhere.append(item.value)

    def report(self, text: str, error: BaseException) -> None:
        self.reports.append(text)

    def progress(self) -> None:
        pass

    def has_room(self) -> bool:
        return self.room


class Bench:
    def __init__(
        self, callbacks: CallbackHandler | None = None, events: EventHandler | None = None, batch: int = 3
    ) -> None:
        self.sink = Sink()
        self.queue = HookQueue(
            self.sink,
            callbacks,
            events or EventHandler(),
            batch_messages=batch,
            queue_ms=10,
        )
        self.queue.poll(0)

    def put(self, *values: Any) -> None:
        for value in values:
            self.queue.put(ProducerItem(topic="t", value=value, token=object()))


def test_a_full_batch_goes_to_the_event_handler_at_once() -> None:
    bench = Bench()
    bench.put(1, 2, 3, 4)
    assert bench.queue.poll(0).wake_ms == 10
    assert bench.sink.routed == [1, 2, 3]
    bench.queue.poll(10)
    assert bench.sink.routed == [1, 2, 3, 4]
    assert bench.queue.waiting == 0


def test_the_hooks_are_called_in_the_classic_order_and_close_comes_last() -> None:
    notes = Notes()
    bench = Bench(notes, batch=2)
    for value in (1, 2, 3):
        item = bench.queue.before_enqueue(ProducerItem(topic="t", value=value, token=object()))
        bench.queue.put(item)
        bench.queue.after_enqueue(item, True)
    bench.queue.closing = True
    bench.queue.poll(1)
    assert bench.queue.drained
    bench.queue.close_handlers()
    assert notes.calls == [
        *(call for n in (1, 2, 3) for call in (("before_enqueue", n), ("after_enqueue", n, True))),
        ("after_dequeue", 1),
        ("after_dequeue", 2),
        ("before_send", [1, 2]),
        ("after_dequeue", 3),
        ("after_dequeue", None),
        ("last_batch",),
        ("before_send", [3, b"last"]),
        ("close",),
    ]
    assert bench.sink.routed == [1, 2, 3, b"last"]


def test_hooks_may_drop_add_and_keep_for_later() -> None:
    class Pairs(CallbackHandler):
        """Sends two at a time, in one."""

        first: ProducerItem | None = None

        def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
            first, self.first = self.first, None
            if item is None:
                return () if first is None else (first,)
            if first is None:
                self.first = item
                return ()
            first.value = (first.value, item.value)
            return (first,)

        def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
            return [item for item in items if item.value != (3, 4)]

    bench = Bench(Pairs(), batch=2)
    bench.put(1, 2, 3, 4, 5)
    bench.queue.poll(0)
    assert bench.sink.routed == [(1, 2)]
    assert bench.sink.elsewhere == [(3, 4)]
    wake = bench.queue.poll(1).wake_ms
    assert wake == IDLE_MS
    bench.queue.poll(wake)
    assert bench.sink.routed == [(1, 2), 5]


def test_an_event_handler_may_send_elsewhere() -> None:
    class Half(EventHandler):
        def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
            send([item for item in items if item.value % 2])

    bench = Bench(events=Half())
    bench.put(1, 2, 3)
    bench.queue.poll(0)
    assert bench.sink.routed == [1, 3]
    assert bench.sink.elsewhere == [2]


def test_without_a_callback_handler_an_idle_queue_sleeps() -> None:
    assert Bench().queue.poll(1000).wake_ms == float("inf")


def test_hurry_does_not_wait_for_a_full_batch() -> None:
    bench = Bench()
    bench.queue.hurry = 1
    bench.put(1)
    bench.queue.poll(0)
    assert bench.sink.routed == [1]


def test_without_room_items_stay_in_the_queue() -> None:
    bench = Bench(batch=1)
    bench.sink.room = False
    bench.put(1)
    bench.queue.poll(0)
    assert (bench.sink.routed, bench.queue.waiting) == ([], 1)
    bench.sink.room = True
    bench.queue.poll(0)
    assert bench.sink.routed == [1]


class Raises(CallbackHandler):
    def __init__(self, hook: str, value: Any) -> None:
        self.hook, self.value = hook, value

    def _check(self, hook: str, value: Any) -> None:
        if hook == self.hook and value == self.value:
            raise RuntimeError("boom")

    def before_enqueue(self, item: ProducerItem) -> ProducerItem:
        self._check("before_enqueue", item.value)
        return item

    def after_enqueue(self, item: ProducerItem, added: bool) -> None:
        self._check("after_enqueue", item.value)

    def after_dequeue(self, item: ProducerItem | None) -> Sequence[ProducerItem]:
        self._check("after_dequeue", None if item is None else item.value)
        return super().after_dequeue(item)

    def before_send(self, items: Sequence[ProducerItem]) -> Sequence[ProducerItem]:
        self._check("before_send", [item.value for item in items])
        return items

    def last_batch_before_close(self) -> Sequence[ProducerItem]:
        self._check("last_batch_before_close", None)
        return ()

    def close(self) -> None:
        self._check("close", None)


def test_a_hook_that_raises_fails_its_messages_and_no_others() -> None:
    for hook, value, lost, sent in (
        ("after_dequeue", 2, [2], [1, 3]),
        ("before_send", [1, 2], [1, 2], [3]),
        ("last_batch_before_close", None, [], [1, 2, 3]),
        ("close", None, [], [1, 2, 3]),
    ):
        bench = Bench(Raises(hook, value), batch=2)
        bench.put(1, 2, 3)
        bench.queue.closing = True
        bench.queue.poll(0)
        bench.queue.close_handlers()
        assert [v for v, _ in bench.sink.lost] == lost, hook
        assert bench.sink.routed == sent, hook
        assert len(bench.sink.reports) == 1, hook
        assert bench.queue.waiting == 0, hook


def test_hooks_of_the_sending_thread_that_raise() -> None:
    bench = Bench(Raises("before_enqueue", 1))
    item = ProducerItem(topic="t", value=1)
    try:
        bench.queue.before_enqueue(item)
    except HookError as error:
        assert "boom" in str(error)
    other = Bench(Raises("after_enqueue", 1))
    other.queue.after_enqueue(item, True)
    assert bench.sink.reports and other.sink.reports


def test_an_event_handler_that_raises_fails_what_it_has_not_sent() -> None:
    class Stops(EventHandler):
        def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
            send(items[:1])
            raise RuntimeError("boom")

    bench = Bench(events=Stops())
    bench.put(1, 2, 3)
    bench.queue.poll(0)
    assert bench.sink.routed == [1]
    assert [v for v, _ in bench.sink.lost] == [2, 3]


def test_event_handler_result_that_is_no_item_is_a_hook_error() -> None:
    class Wrong(CallbackHandler):
        def after_dequeue(self, item: ProducerItem | None) -> Any:
            return None if item is None else item

        def before_enqueue(self, item: ProducerItem) -> Any:
            return None

    bench = Bench(Wrong())
    bench.put(1)
    bench.queue.poll(0)
    assert [v for v, _ in bench.sink.lost] == [1]
    try:
        bench.queue.before_enqueue(ProducerItem(topic="t"))
    except HookError as error:
        assert "None" in str(error)


def test_a_token_is_sent_once() -> None:
    class Twice(EventHandler):
        def handle(self, items: Sequence[ProducerItem], send: SendItems) -> None:
            send([*items, *items])

    bench = Bench(events=Twice(), batch=1)
    bench.put(1)
    bench.queue.poll(0)
    assert bench.sink.routed == [1]
    assert bench.sink.reports == ["handler: handle failed"]
