"""How many partitions a topic has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ....core.client.errors import ClientTimeout
from ....ports.errors import ApiError

if TYPE_CHECKING:
    from ..shared.client_shell import ClientShell


def partition_count(shell: ClientShell, topic: str, timeout: float, at_least: int) -> int:
    """With the lock held. Waits up to `timeout` seconds to hear of the topic, and of `at_least` partitions.

    Raises `ApiError`, `ClientTimeout`.
    """
    view = shell.view

    def settled() -> bool:
        found, error = view.topic(topic), view.topic_errors.get(topic)
        if found is not None and len(found.leaders) < at_least:
            view.request_refresh()
            shell.wake()
            return False
        return found is not None or (error is not None and not error.retriable)

    view.want([topic])
    shell.wake()
    shell.wait(settled, timeout)
    found, error = view.topic(topic), view.topic_errors.get(topic)
    if found is not None:
        return len(found.leaders)
    if error is not None:
        raise ApiError(error, f"topic {topic}")
    raise ClientTimeout(f"no metadata of topic {topic} within {timeout} s{view.why}")
