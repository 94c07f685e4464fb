"""Asking a broker of this process, past the network and the faults."""

from concurrent.futures import Future

from ..app.embedded_broker import Broker
from ..ports.broker_api.envelope import Caller, Request, ResultT
from ..ports.errors import BarnabasError
from .own_clients import PATIENCE_S

CLIENT_ID = "barnabas-testing"


def ask(broker: Broker, request: Request[ResultT]) -> ResultT:
    """Return the broker's answer. Raises `BarnabasError`."""
    answer = Asked[ResultT]()
    caller = Caller(client_id=CLIENT_ID, host="127.0.0.1", listener=broker.listeners[0])
    broker.scheduler.call_soon(lambda: broker.api.submit(request, caller, answer.set))
    return answer.get()


class Asked(Future[ResultT | BarnabasError]):
    """The result that the broker's thread sets and the caller's thread waits for."""

    def set(self, result: ResultT | BarnabasError) -> None:
        self.set_result(result)

    def get(self) -> ResultT:
        """Raises the `BarnabasError` for which there is no result."""
        result = self.result(PATIENCE_S)
        if isinstance(result, BarnabasError):
            raise result
        return result
