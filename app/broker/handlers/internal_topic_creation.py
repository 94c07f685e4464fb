"""Creation of internal topics at their first use."""

from collections.abc import Callable

from ....ports.broker_api.topics import NewTopic
from ..state.broker_state import BrokerState
from .topics import TopicService


class InternalTopics:
    """Creates internal topics at their first use. Owner thread only."""

    def __init__(self, state: BrokerState, topics: TopicService) -> None:
        self._state = state
        self._topics = topics

    def make(self, name: str, callback: Callable[[str], None]) -> None:
        """Call back when the topic exists, at once or later: with an empty text, or the error of its creation."""
        if name in self._state.image.topics:
            callback("")
            return

        async def made() -> None:
            if name not in self._state.image.topics:
                await self._topics.create_one(NewTopic(name=name))

        self._state.changes.submit(f"making {name}", made, lambda error: callback("" if error is None else str(error)))
