"""A broker whose dead predecessor still stands in the registry: it starts, and requests wait until it is registered."""

from collections.abc import Sequence
from functools import partial

import pytest
from support.raw import frame

from barnabas.ports.coordination import Coordination
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, BarnabasError, ClosedError
from barnabas.ports.transport import Connection, ConnectionHandler, Limits, TransportError
from barnabas.testing.manual_broker import ManualBroker

ID = "/barnabas/brokers/ids/1"
PATIENCE_MS = 60_000


class Client:
    """Collects what comes back."""

    def __init__(self, broker: ManualBroker) -> None:
        self.answers: list[bytes] = []
        self.connection: Connection | None = None
        self.is_closed = False
        transport = broker.network.transport("client")
        transport.connect(("broker", 9092), self._opened, timeout_ms=1000, limits=Limits())
        broker.scheduler.run_pending()

    def _opened(self, connection: Connection | TransportError) -> ConnectionHandler | None:
        assert not isinstance(connection, TransportError)
        self.connection = connection
        return self

    def on_frame(self, content: memoryview) -> None:
        self.answers.append(bytes(content))

    def on_closed(self, error: TransportError | None) -> None:
        self.is_closed = True

    def send(self, pieces: Sequence[bytes]) -> None:
        assert self.connection is not None
        self.connection.send(pieces)


class Waiting:
    """A broker that waits for the end of its predecessor's session."""

    def __init__(self, data: bytes | None = None) -> None:
        self.broker = ManualBroker()
        standing = self.broker.tree.session().get(ID).data
        self.broker.stop()
        self.predecessor: Coordination = self.broker.tree.session()
        self.predecessor.create(ID, data or standing, ephemeral=True)
        self.broker.clock.advance_to(self.broker.clock.monotonic_ms() + 100)
        self.observed: list[BarnabasError | None] = []

    def start(self) -> None:
        self.broker.node = self.broker._started()
        self.broker.node.when_ready(self.observed.append)


@pytest.fixture
def waiting() -> Waiting:
    made = Waiting()
    made.start()
    return made


def test_requests_wait_until_the_predecessor_is_gone(waiting: Waiting) -> None:
    broker = waiting.broker
    client = Client(broker)
    client.send([frame(18, 0, b"")[4:]])
    broker.scheduler.advance(2000)
    assert (broker.node.ready, waiting.observed, client.answers) == (False, [], [])
    waiting.predecessor.close()
    broker.scheduler.advance(1000)
    assert (broker.node.ready, waiting.observed) == (True, [None])
    assert len(client.answers) == 1
    broker.node.when_ready(waiting.observed.append)
    assert waiting.observed == [None, None]
    client.send([frame(18, 0, b"")[4:]])
    broker.scheduler.advance(100)
    assert len(client.answers) == 2


def test_a_predecessor_that_does_not_go_stops_the_broker(waiting: Waiting) -> None:
    broker = waiting.broker
    client = Client(broker)
    broker.scheduler.advance(PATIENCE_MS)
    assert len(waiting.observed) == 1
    assert isinstance(waiting.observed[0], ApiError)
    assert waiting.observed[0].code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert client.is_closed
    assert any(ID in line and "stops" in line for line in broker.reports)
    assert broker.tree.session().get(ID).data == waiting.predecessor.get(ID).data


def test_failed_callback_receives_registration_timeout(waiting: Waiting) -> None:
    failures: list[BarnabasError] = []
    waiting.broker.node.failed = failures.append
    waiting.broker.scheduler.advance(PATIENCE_MS)
    assert len(failures) == 1


def test_stopped_before_it_was_ready(waiting: Waiting) -> None:
    waiting.broker.stop()
    assert [type(error) for error in waiting.observed] == [ClosedError]


def test_start_with_broker_id_of_another_broker_fails_at_once() -> None:
    waiting = Waiting(b'{"version":1,"endpoints":["kafka://other:9092"],"rack":null,"started_ms":5}')
    with pytest.raises(ApiError, match="other:9092") as raised:
        waiting.start()
    assert raised.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    waiting.predecessor.close()
    waiting.start()
    assert waiting.observed == [None]


def test_every_stop_call_runs_its_callback(waiting: Waiting) -> None:
    stopped: list[int] = []
    for number in range(2):
        waiting.broker.node.stop(partial(stopped.append, number))
    waiting.broker.scheduler.advance(2000)
    waiting.broker.node.stop(lambda: stopped.append(2))
    assert stopped == [0, 1, 2]
