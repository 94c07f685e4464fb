"""Every client library does with this broker what it does with Kafka. The matrix is data: `support.compat.matrix`."""

import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from support.compat import checks_admin, checks_groups, checks_messages, checks_share_groups, checks_transactions
from support.compat.logins import WAYS
from support.compat.matrix import CLIENTS
from support.compat.model import Client, Unavailable
from support.compat.world import World

pytestmark = [
    # the first one of a library may have to fetch it
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

Check = Callable[[World, Client], None]
CHECKS: dict[str, Check] = {
    "produce": checks_messages.check_produce,
    "compression": checks_messages.check_compression,
    "idempotent": checks_messages.check_idempotent,
    "assigned": checks_messages.check_assigned,
    "headers": checks_messages.check_headers,
    "nulls": checks_messages.check_nulls,
    "large": checks_messages.check_large,
    "seek": checks_messages.check_seek_by_time,
    "offsets": checks_messages.check_offsets,
    "create": checks_admin.check_create,
    "alter": checks_admin.check_alter,
    "delete": checks_admin.check_delete,
    "configs": checks_admin.check_configs,
    "group": checks_groups.check_group,
    "commit": checks_groups.check_commit,
    "rebalance": checks_groups.check_rebalance,
    "cooperative": checks_groups.check_cooperative,
    "consumer-protocol": checks_groups.check_consumer_protocol,
    "share": checks_share_groups.check_share_group,
    "transactions": checks_transactions.check_transactions,
    "fencing": checks_transactions.check_fencing,
    "transform": checks_transactions.check_transform,
    "transactions-2": checks_transactions.check_version_2,
}


QUICK = {
    *(("barnabas", feature) for feature in CLIENTS["barnabas"].features if feature not in WAYS),
    *(
        (key, feature)
        for key in ("librdkafka", "kafka-python", "aiokafka")
        for feature in ("produce", "create", "group")
    ),
}
"""Cells of `make test`; `make prove` and `make compatibility` try all."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    made = World({key: entry.make for key, entry in CLIENTS.items()})
    try:
        yield made
    finally:
        made.close()
        gc.collect()  # some of these libraries leave sockets to the garbage collector


def cells() -> Iterator[Any]:
    for entry in CLIENTS.values():
        for feature in entry.features:
            if feature in WAYS:
                continue  # test_secured_clients.py has those
            marks = [pytest.mark.xdist_group(f"compatibility-{entry.key}")]
            if (entry.key, feature) not in QUICK:
                marks.append(pytest.mark.slow)
            if feature in entry.faults:
                marks.append(pytest.mark.xfail(reason=entry.faults[feature], strict=True))
            yield pytest.param(entry.key, feature, id=f"{entry.key}-{feature}", marks=marks)


@pytest.mark.parametrize(("key", "feature"), list(cells()))
def test_client_passes_feature_check(
    world: World, record_property: Callable[[str, object], None], key: str, feature: str
) -> None:
    client = client_of(world, key)
    record_property("version", client.version)
    check = CHECKS.get(feature)
    if check is not None:
        check(world, client)
    elif feature == "mixed":
        checks_groups.check_mixed(world, client, [client_of(world, other) for other in CLIENTS[key].others])
    else:
        checks_groups.check_describe(world, client, client_of(world, "librdkafka"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(key, marks=pytest.mark.xdist_group(f"compatibility-{key}"))
        for key, entry in CLIENTS.items()
        if "transactions-2" in entry.lacks and "transactions" not in entry.lacks
    ],
)
def test_other_clients_keep_version_1_of_transactions(world: World, name: str) -> None:
    checks_transactions.check_version_1(world, client_of(world, name))


@pytest.mark.slow
@pytest.mark.xdist_group("compatibility-all")
def test_all_that_are_here_share_a_group(world: World) -> None:
    here = []
    for key in CLIENTS:
        with suppress(Unavailable):
            here.append(world.client(key))
    checks_groups.check_everybody(world, here)


def client_of(world: World, key: str) -> Client:
    try:
        return world.client(key)
    except Unavailable as error:
        pytest.skip(str(error))
