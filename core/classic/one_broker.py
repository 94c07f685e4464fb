"""One broker, asked one thing after the other: what a simple consumer does (facts A8)."""

from typing import Any

from ...ports.broker_api.envelope import Reply, Request
from ...ports.errors import ClosedError
from ...ports.transport import TransportError
from ..client.network.links import NodeLink


class OneBroker:
    """Requests to one broker: after an I/O error it connects again and asks once more. Owner thread only."""

    def __init__(self, link: NodeLink) -> None:
        """The link is this object's own, and waits for nothing before it connects again."""
        self._link = link
        self._closed = False

    def ask(self, request: Request[Any], answer: Reply[Any]) -> None:
        """`answer` gets the result, or the `BarnabasError` for which there is none."""
        if self._closed:
            answer(ClosedError("the consumer is closed"))
            return

        def reply(result: Any) -> None:
            if isinstance(result, TransportError) and not self._closed:
                self._link.submit(request, answer)
            else:
                answer(result)

        self._link.submit(request, reply)

    def close(self) -> None:
        """Hang up; what is under way fails."""
        self._closed = True
        self._link.close()
