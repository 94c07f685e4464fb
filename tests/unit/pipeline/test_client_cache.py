"""Clients that stay connected between tasks."""

import os

import pytest
from attrs import define

from barnabas.pipeline.topics.client_cache import IDLE_CLIENTS_MAX, IDLE_S, ClientCache


@define
class Client:
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@define
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


def _use(cache: ClientCache[Client], key: object = "a") -> Client:
    with cache.opened(key, Client) as client:
        assert not client.closed
    return client


def test_client_is_reused_for_same_settings_only() -> None:
    cache: ClientCache[Client] = ClientCache()
    first = _use(cache, ("h:1", frozenset({("client.id", "one")})))
    assert _use(cache, ("h:1", frozenset({("client.id", "one")}))) is first
    assert _use(cache, ("h:1", frozenset({("client.id", "two")}))) is not first
    assert not first.closed
    cache.close()
    assert first.closed


def test_two_at_once_have_one_each() -> None:
    cache: ClientCache[Client] = ClientCache()
    with cache.opened("a", Client) as one, cache.opened("a", Client) as other:
        assert one is not other
    assert _use(cache) in (one, other)


def test_client_that_failed_is_closed_and_not_reused() -> None:
    cache: ClientCache[Client] = ClientCache()
    first = _use(cache)
    with pytest.raises(ZeroDivisionError), cache.opened("a", Client) as again:
        raise ZeroDivisionError
    assert again is first
    assert first.closed
    assert _use(cache) is not first


def test_idle_ones_are_closed() -> None:
    clock = Clock()
    cache: ClientCache[Client] = ClientCache(clock)
    first, other = _use(cache), _use(cache, "b")
    clock.now = IDLE_S + 1
    assert _use(cache) is not first
    assert first.closed
    assert other.closed


def test_client_cache_closes_oldest_beyond_limit() -> None:
    cache: ClientCache[Client] = ClientCache()
    clients = [_use(cache, number) for number in range(IDLE_CLIENTS_MAX + 1)]
    assert [client.closed for client in clients] == [True] + [False] * IDLE_CLIENTS_MAX


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_has_connections_of_its_own() -> None:
    cache: ClientCache[Client] = ClientCache()
    first = _use(cache)
    child = os.fork()
    if not child:
        os._exit(int(_use(cache) is first or first.closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _use(cache) is first
