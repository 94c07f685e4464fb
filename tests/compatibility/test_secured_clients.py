"""Every client library logs in to a secured broker by each mechanism, and is refused as by Kafka."""

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.compat.checks_security import check_login
from support.compat.logins import WAYS
from support.compat.matrix import CLIENTS
from support.compat.model import Unavailable
from support.compat.secured_world import SecuredWorld

pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
QUICK = {"barnabas", "librdkafka"}
"""Clients whose cells take less than two seconds."""


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredWorld]:
    made = SecuredWorld(tmp_path_factory.mktemp("secured"), {key: entry.make for key, entry in CLIENTS.items()})
    try:
        yield made
    finally:
        made.close()
        gc.collect()  # some of these libraries leave sockets to the garbage collector


def cells() -> Iterator[Any]:
    for entry in CLIENTS.values():
        for feature in entry.features:
            if feature not in WAYS:
                continue
            marks = [pytest.mark.xdist_group(f"compatibility-{entry.key}")]
            if entry.key not in QUICK:
                marks.append(pytest.mark.slow)
            if feature in entry.faults:
                marks.append(pytest.mark.xfail(reason=entry.faults[feature], strict=True))
            yield pytest.param(entry.key, feature, id=f"{entry.key}-{feature}", marks=marks)


@pytest.mark.parametrize(("key", "feature"), list(cells()))
def test_client_logs_in_as_its_user_and_is_refused_without_its_secret(
    world: SecuredWorld, record_property: Callable[[str, object], None], key: str, feature: str
) -> None:
    try:
        client = world.client(key, world.login(WAYS[feature]))
    except Unavailable as error:
        pytest.skip(str(error))
    record_property("version", client.version)
    check_login(world, key, feature)
