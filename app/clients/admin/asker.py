"""The requests that the parts of `Admin` share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from ....core.client.calls import CoordinatorOf, Target
from ....ports.broker_api.cluster import BrokerNode
from ....ports.broker_api.envelope import Request, ResultT
from ....ports.broker_api.groups import Coordinator, FindCoordinator, FindCoordinatorResult
from ....ports.broker_api.metadata import Metadata, MetadataResult
from ....ports.error_codes import ErrorCode
from ....ports.errors import ApiError, ConfigError
from ....ports.transport import TransportError
from ....ports.types import TopicPartition
from ..shared.client_shell import ClientShell
from ..shared.settings import CommonSettings

_PASSING = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
    }
)
"""Errors that disappear at the right broker, or later. Other retriable errors are about partitions."""

TopicPartitionLike = TopicPartition | tuple[str, int]
TopicPartitionLikeT = TypeVar("TopicPartitionLikeT", bound=TopicPartitionLike)


class AdminRequests:
    """Sends requests to any broker, to each of them, or to a coordinator."""

    def __init__(self, shell: ClientShell, settings: CommonSettings) -> None:
        self.shell = shell
        self.settings = settings

    def brokers(self) -> Sequence[BrokerNode]:
        result: MetadataResult = self.shell.ask(Metadata(topics=[], allow_auto_topic_creation=False))
        return result.brokers

    def check_broker(self, node: int) -> None:
        """Raise `ConfigError` for an unknown broker."""
        if self.shell.view.address(node) is None and node not in {broker.node_id for broker in self.brokers()}:
            raise ConfigError(f"unknown broker {node}")

    def ask_brokers(self, request: Request[ResultT]) -> Iterator[tuple[int, ResultT]]:
        """Yield each broker's id and result. If a broker leaves the cluster, all remaining brokers are asked again."""
        todo = {broker.node_id for broker in self.brokers()}
        done: set[int] = set()
        while todo:
            node = min(todo)
            try:
                result = self.shell.ask(request, node, retriable=passing(_whole))
            except TransportError:
                todo, done = {broker.node_id for broker in self.brokers()}, set()
                continue  # other brokers are the coordinators of its groups now
            yield node, result
            done.add(node)
            todo -= done

    def coordinator(self, target: CoordinatorOf, what: str) -> Coordinator:
        request = FindCoordinator(keys=[target.key], key_type=target.key_type)

        def error(result: FindCoordinatorResult) -> Iterable[ErrorCode]:
            return [result.coordinators[0].error]

        result: FindCoordinatorResult = self.shell.ask(request, Target.ANY, retriable=passing(error))
        found = result.coordinators[0]
        check(found.error, found.error_message, f"the coordinator of {what}")
        return found


def check(error: ErrorCode, message: str | None, what: str) -> None:
    """Raise `ApiError` with the broker's message, or with `what` the error is about."""
    if error is not ErrorCode.NONE:
        raise ApiError(error, message or what)


def passing(errors: Callable[[Any], Iterable[ErrorCode]]) -> Callable[[Any], ErrorCode]:
    """Return a function that finds the error for which a result is worth another attempt; NONE if there is none."""

    def first(result: Any) -> ErrorCode:
        return next((error for error in errors(result) if error in _PASSING), ErrorCode.NONE)

    return first


def _whole(result: Any) -> Iterable[ErrorCode]:
    return [result.error]
