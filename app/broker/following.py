"""What a broker makes of changes that others have made in the coordination tree."""

from ...core.cluster import layout
from ...core.cluster.following import ClusterFollower, Reading
from ...core.cluster.topics import BrokerRegistration
from ...ports.broker_api import Reply
from .state import BrokerState
from .topics import TopicService


def cluster_follower(state: BrokerState, topics: TopicService, own: BrokerRegistration) -> ClusterFollower:
    """Not begun yet. A broker whose topics they are opens the logs of new ones; what is no more in the tree keeps its
    logs, and is served until the broker stops: data wins (decision 116)."""
    owns_topics = state.settings.static.owns_topics
    told: set[str] = set()

    def tell_once(name: str, text: str) -> None:
        if name not in told:
            told.add(name)
            state.report(text)

    async def settle(name: str) -> None:
        if not owns_topics:
            await state.registry.reread(name)
        elif state.logs.orphans_of(name):
            cure = "restart the broker to open them"
            tell_once(name, f"topic {name} has come back to the coordination tree, and has folders here: {cure}")
        else:
            await topics.settle(name)

    def vanished(name: str) -> bool:
        if owns_topics:
            cure = "put the node back before the broker stops, or let 'barnabas topics recover' make it anew then"
            tell_once(name, f"{layout.topic_path(name)} was removed by somebody; the topic is still served: {cure}")
        return not owns_topics

    def submit(what: str, reading: Reading, done: Reply[None]) -> None:
        state.changes.submit(what, reading, done)

    return ClusterFollower(state.registry, state.scheduler, submit, own, settle=settle, vanished=vanished)
