"""Every API that we speak, as data. A family is a module with its `APIS`; one in `_FAMILIES` is known to both ends."""

from collections.abc import Iterable
from typing import Any

from . import (
    cluster,
    configs,
    consumer_groups,
    features,
    fetch,
    groups,
    produce,
    scram,
    security,
    share_groups,
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
    features.APIS,
    security.APIS,
    groups.APIS,
    consumer_groups.APIS,
    transactions.APIS,
    scram.APIS,
    share_groups.APIS,
)

_CLIENT_FAMILIES: tuple[Iterable[Api], ...] = ()
"""Families that our clients speak with other brokers; this broker does not offer them."""

BY_KEY: dict[int, Api] = {api.key: api for family in _FAMILIES for api in family}
"""The APIs that the broker offers."""
CLIENT_ONLY: dict[int, Api] = {api.key: api for family in _CLIENT_FAMILIES for api in family}
BY_REQUEST: dict[type[Any], Api] = {api.request_type: api for api in (*BY_KEY.values(), *CLIENT_ONLY.values())}
"""The APIs that our clients speak."""
