"""Every API that we speak, as data. A family is a module with its `APIS`; named here, it is known to both ends."""

from collections.abc import Iterable
from typing import Any

from . import (
    cluster,
    configs,
    fetch,
    groups,
    produce,
    scram,
    security,
    topics,
    transactions,
)
from .api import Api

_FAMILIES: tuple[Iterable[Api], ...] = (
    produce.APIS,
    fetch.APIS,
    topics.APIS,
    configs.APIS,
    cluster.APIS,
    security.APIS,
    groups.APIS,
    transactions.APIS,
    scram.APIS,
)

BY_KEY: dict[int, Api] = {api.key: api for family in _FAMILIES for api in family}
BY_REQUEST: dict[type[Any], Api] = {api.request_type: api for api in BY_KEY.values()}
