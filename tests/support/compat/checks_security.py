"""The checks of a secured broker: a client logs in, acts as its user, and gets an error where it may not."""

import logging
import re

import pytest
from support.waiting import wait_for

from .checks_messages import COUNT, contents, records_of
from .logins import WAYS
from .model import PATIENCE_S
from .secured_world import SecuredWorld

_UNTOLD = dict.fromkeys(
    (("aiokafka", feature) for feature in ("mutual-tls", "sasl_plaintext-oauthbearer", "sasl_ssl-oauthbearer")),
    re.compile("Connection at .* closed"),
)
"""Cases in which the library reports neither the broker's TLS alert nor its answer to a bad token."""
_UNAUTHENTICATED = re.compile("authentic|sasl|oauth|ssl|tls|certificate|handshake", re.IGNORECASE)
_UNAUTHORIZED = re.compile("authoriz", re.IGNORECASE)


def check_login(world: SecuredWorld, key: str, feature: str) -> None:
    """Produce and consume in a group as the user who alone may, and nothing else; then without the right secret."""
    way = WAYS[feature]
    client = world.client(key, world.login(way))
    topic, group, records = world.topic(way.user), world.group(way.user), records_of(key)
    client.produce(topic, records)
    member = client.join(group, topic)
    try:
        wait_for(lambda: len(member.received()) >= COUNT, PATIENCE_S, pause_s=0.02)
        assert contents(member.received()) == contents(records)
    finally:
        member.close()
    forbidden = world.topic("somebody-else")
    with pytest.raises(Exception, match=_UNAUTHORIZED):
        client.produce(forbidden, records)
    refused = world.client(key, world.wrong_login(way))
    lines = _Lines()
    library = logging.getLogger(key.replace("-python", ""))
    level = library.level
    library.addHandler(lines)
    library.setLevel(logging.WARNING)
    try:
        refused.produce(topic, records)
        observed = ""
    except Exception as error:  # noqa: BLE001  its words are compared below
        observed = "\n".join([repr(error), *lines.texts])
    finally:
        library.removeHandler(lines)
        library.setLevel(level)
    assert _UNTOLD.get((key, feature), _UNAUTHENTICATED).search(observed), observed


class _Lines(logging.Handler):
    """The log lines of a library: kafka-python and aiokafka log the reason, and raise without it."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage())
