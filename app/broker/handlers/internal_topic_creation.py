"""The topics that belong to the broker itself are made when somebody needs them."""

from collections.abc import Callable

from ....ports.broker_api.topics import NewTopic
from ..state.broker_state import BrokerState
from .topics import TopicService


class InternalTopics:
    """Made when somebody needs them. Owner thread only."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics

    def make(self, name: str, told: Callable[[str], None]) -> None:
        """Call `told` when the topic is there, at once or later: with nothing, or why it could not be made."""
        if name in self._state.image.topics:
            told("")
            return

        async def made() -> None:
            if name not in self._state.image.topics:
                await self._topics.create_one(NewTopic(name=name))

        self._state.changes.submit(f"making {name}", made, lambda error: told("" if error is None else str(error)))
