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


def _use(kept: ClientCache[Client], key: object = "a") -> Client:
    with kept.opened(key, Client) as client:
        assert not client.closed
    return client


def test_client_is_reused_for_same_settings_only() -> None:
    kept: ClientCache[Client] = ClientCache()
    first = _use(kept, ("h:1", frozenset({("client.id", "one")})))
    assert _use(kept, ("h:1", frozenset({("client.id", "one")}))) is first
    assert _use(kept, ("h:1", frozenset({("client.id", "two")}))) is not first
    assert not first.closed
    kept.close()
    assert first.closed


def test_two_at_once_have_one_each() -> None:
    kept: ClientCache[Client] = ClientCache()
    with kept.opened("a", Client) as one, kept.opened("a", Client) as other:
        assert one is not other
    assert _use(kept) in (one, other)


def test_client_that_failed_is_closed_and_not_reused() -> None:
    kept: ClientCache[Client] = ClientCache()
    first = _use(kept)
    with pytest.raises(ZeroDivisionError), kept.opened("a", Client) as again:
        raise ZeroDivisionError
    assert again is first
    assert first.closed
    assert _use(kept) is not first


def test_idle_ones_are_closed() -> None:
    clock = Clock()
    kept: ClientCache[Client] = ClientCache(clock)
    first, other = _use(kept), _use(kept, "b")
    clock.now = IDLE_S + 1
    assert _use(kept) is not first
    assert first.closed
    assert other.closed


def test_client_cache_closes_oldest_beyond_limit() -> None:
    kept: ClientCache[Client] = ClientCache()
    clients = [_use(kept, number) for number in range(IDLE_CLIENTS_MAX + 1)]
    assert [client.closed for client in clients] == [True] + [False] * IDLE_CLIENTS_MAX


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_child_has_connections_of_its_own() -> None:
    kept: ClientCache[Client] = ClientCache()
    first = _use(kept)
    child = os.fork()
    if not child:
        os._exit(int(_use(kept) is first or first.closed))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert _use(kept) is first
