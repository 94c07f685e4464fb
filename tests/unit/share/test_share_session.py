"""Sessions of share groups: epochs, limits, connections (facts D3)."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.core.share.share_session import ShareSession, ShareSessionCache
from barnabas.ports.broker_api.share_groups import ForgottenSharePartition, ShareFetchPartition
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

TOPIC = b"0123456789abcdef"


def open_session(
    cache: ShareSessionCache,
    member: str = "m",
    connection: int = 1,
    epoch: int = 0,
    *,
    has_acknowledgements: bool = False,
) -> ShareSession:
    return cache.session_for_fetch("g", member, epoch, connection, has_acknowledgements=has_acknowledgements)


def refusal(action: Callable[..., object], *arguments: Any, **options: Any) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        action(*arguments, **options)
    return refused.value.code


def test_session_counts_its_epochs() -> None:
    cache = ShareSessionCache(lambda: 10)
    session = open_session(cache)
    assert open_session(cache, epoch=1) is session
    assert cache.session_for_acknowledge("g", "m", 2) is session
    assert refusal(open_session, cache, epoch=2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refusal(cache.session_for_acknowledge, "g", "m", 0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert open_session(cache, epoch=3) is session


def test_epoch_after_the_largest_is_one() -> None:
    cache = ShareSessionCache(lambda: 10)
    session = open_session(cache)
    session.epoch = 2**31 - 1
    open_session(cache, epoch=2**31 - 1)
    assert session.epoch == 1


def test_unknown_session_is_refused() -> None:
    cache = ShareSessionCache(lambda: 10)
    assert refusal(open_session, cache, epoch=1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert refusal(open_session, cache, epoch=-1) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_first_epoch_with_acknowledgements_is_refused() -> None:
    cache = ShareSessionCache(lambda: 10)
    assert refusal(open_session, cache, has_acknowledgements=True) is ErrorCode.INVALID_REQUEST
    assert len(cache) == 0


def test_sessions_beyond_the_limit_are_refused_and_a_restart_of_one_is_not() -> None:
    cache = ShareSessionCache(lambda: 1)
    first = open_session(cache)
    assert refusal(open_session, cache, "other") is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    assert open_session(cache) is not first
    assert first.is_closed


def test_final_epoch_closes_the_session() -> None:
    cache = ShareSessionCache(lambda: 1)
    session = open_session(cache)
    assert open_session(cache, epoch=-1) is session
    assert session.is_closed
    assert len(cache) == 0


def test_lost_connection_closes_its_sessions_only() -> None:
    cache = ShareSessionCache(lambda: 10)
    first, second = open_session(cache, "a", 1), open_session(cache, "b", 2)
    assert cache.remove_connection(1) == [first]
    assert cache.remove_connection(1) == []
    assert open_session(cache, "b", 2, 1) is second


def test_partitions_of_a_session_come_in_turn() -> None:
    cache = ShareSessionCache(lambda: 10)
    session = open_session(cache)
    session.update([ShareFetchPartition(TOPIC, each, topic="t") for each in range(3)], ())
    firsts = {session.in_turn()[0][0][1]}
    for epoch in (1, 2):
        open_session(cache, epoch=epoch)
        firsts.add(session.in_turn()[0][0][1])
    assert firsts == {0, 1, 2}
    session.update((), [ForgottenSharePartition(TOPIC, 1)])
    assert [number for (_, number), _ in session.in_turn()] in ([0, 2], [2, 0])
    assert cache.partition_count == 2
