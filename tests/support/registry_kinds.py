"""Both kinds of registries as parameters, each with its tests in an xdist group of its own."""

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support.etcd_server import EtcdServer
    from support.zookeeper_server import ZookeeperServer

WITH_ZOOKEEPER = pytest.param("zookeeper", marks=pytest.mark.xdist_group("zookeeper"))
WITH_ETCD = pytest.param("etcd", marks=pytest.mark.xdist_group("etcd"))
WITH_BOTH = (WITH_ZOOKEEPER, pytest.param("etcd", marks=[pytest.mark.xdist_group("etcd"), pytest.mark.slow]))
"""`make test` takes the first one, with which most contents are the original's; `make prove` takes both."""


def server_of(request: pytest.FixtureRequest) -> "ZookeeperServer | EtcdServer":
    """Return the server of the fixture's parameter, shared by all tests of the process."""
    server: ZookeeperServer | EtcdServer = request.getfixturevalue(f"{request.param}_server")
    return server
