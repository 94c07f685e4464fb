"""What the parts of `Admin` share."""

from __future__ import annotations

from collections.abc import Sequence

from ...ports.broker_api import BrokerNode, Metadata, MetadataResult
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError, ConfigError
from ...ports.words import TopicPartition
from .settings import CommonSettings
from .shell import ClientShell

Place = TopicPartition | tuple[str, int]


class AdminBase:
    """A shell to ask with. The parts of `Admin` derive from it, each with the calls of one family."""

    settings: CommonSettings
    _shell: ClientShell

    def _brokers(self) -> Sequence[BrokerNode]:
        result: MetadataResult = self._shell.ask(Metadata(topics=[], allow_auto_topic_creation=False))
        return result.brokers

    def _know(self, node: int) -> None:
        """Raises `ConfigError` where there is no such broker."""
        if self._shell.view.address(node) is None and node not in {broker.node_id for broker in self._brokers()}:
            raise ConfigError(f"there is no broker {node}")


def check(error: ErrorCode, message: str | None, what: str) -> None:
    """Raises `ApiError` with what the broker says, or with `what` it is about."""
    if error is not ErrorCode.NONE:
        raise ApiError(error, message or what)
