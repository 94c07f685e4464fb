"""The topic keys that name replicas: whose copying is throttled."""

from ...ports.broker_api.configs import ConfigType
from .keys import ConfigKey


def _replicas(name: str, doc: str) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.LIST,
        default=(),
        doc=doc,
        form=r"[0-9]{1,10}:[0-9]{1,10}|\*",
        form_text="a list of PARTITION:BROKER, or * for all",
    )


THROTTLED_REPLICAS = (
    _replicas(
        "follower.replication.throttled.replicas",
        "PARTITION:BROKER,... or *: the followers that fetch at most follower.replication.throttled.rate.",
    ),
    _replicas(
        "leader.replication.throttled.replicas",
        "PARTITION:BROKER,... or *: the leaders that give followers at most leader.replication.throttled.rate.",
    ),
)
