"""Entities of quotas: which limit applies, what shares a meter, what is refused, and how meters end."""

import pytest

from barnabas.core.security.quotas.client_quotas import ClientQuotas, MeterKey
from barnabas.core.security.quotas.entities import (
    PRODUCER_BYTE_RATE,
    altered,
    check_alteration,
    describe,
    entity_name,
    stored_entry,
)
from barnabas.core.security.quotas.quota_manager import ClientQuotaManager
from barnabas.core.security.quotas.rate import QuotaWindows
from barnabas.ports.broker_api.quotas import DescribeClientQuotas, QuotaAlteration, QuotaEntry, QuotaFilter, QuotaOp
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError

Entity = dict[str, str | None]
IN_ORDER: list[tuple[Entity, MeterKey]] = [
    ({"user": "ann", "client-id": "app"}, MeterKey("ann", "app")),
    ({"user": "ann", "client-id": None}, MeterKey("ann", "app")),
    ({"user": "ann"}, MeterKey("ann", None)),
    ({"user": None, "client-id": "app"}, MeterKey("ann", "app")),
    ({"user": None, "client-id": None}, MeterKey("ann", "app")),
    ({"user": None}, MeterKey("ann", None)),
    ({"client-id": "app"}, MeterKey(None, "app")),
    ({"client-id": None}, MeterKey(None, "app")),
]


def quota(entity: Entity, rate: float) -> QuotaEntry:
    return QuotaEntry(entity=entity, limits={PRODUCER_BYTE_RATE: rate})


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_most_special_entity_applies_and_names_the_meter(first: int) -> None:
    entries = [quota(entity, number) for number, (entity, _) in enumerate(IN_ORDER, 1)][first:]
    found = ClientQuotas(reversed(entries)).find(PRODUCER_BYTE_RATE, "ann", "app")
    assert found == (first + 1, IN_ORDER[first][1])


def test_client_without_a_matching_entity_has_no_limit() -> None:
    quotas = ClientQuotas([quota({"user": "ann"}, 5), quota({"client-id": "app"}, 6)])
    assert quotas.find(PRODUCER_BYTE_RATE, "bob", "other") is None
    assert quotas.find("consumer_byte_rate", "ann", "app") is None


def test_name_like_a_default_is_no_default() -> None:
    quotas = ClientQuotas([quota({"user": "<default>"}, 5)])
    assert quotas.find(PRODUCER_BYTE_RATE, "bob", "") is None
    assert entity_name({"user": "<default>"}) != entity_name({"user": None})


def test_different_entities_have_different_stored_names() -> None:
    entities: list[Entity] = [entity for entity, _ in IN_ORDER]
    entities += [{"user": "ann,client-id=app"}, {"user": "ann%2Cclient-id=app"}, {"ip": "::1"}, {"ip": None}]
    assert len({entity_name(entity) for entity in entities}) == len(entities)


def alteration(entity: Entity, **limits: float | None) -> QuotaAlteration:
    return QuotaAlteration(entity=entity, ops=[QuotaOp(key=key, value=value) for key, value in limits.items()])


def test_alteration_sets_and_removes_limits_of_the_stored_form() -> None:
    first = altered(alteration({"user": None}, producer_byte_rate=10.0, request_percentage=2.5))(None)
    assert first is not None
    assert stored_entry(first) == QuotaEntry(
        entity={"user": None}, limits={"producer_byte_rate": 10.0, "request_percentage": 2.5}
    )
    second = altered(alteration({"user": None}, producer_byte_rate=None))(first)
    assert second is not None and second["limits"] == {"request_percentage": 2.5}
    assert altered(alteration({"user": None}, request_percentage=None))(second) is None


@pytest.mark.parametrize(
    ("entity", "limits"),
    [
        ({}, {"producer_byte_rate": 1}),
        ({"planet": "mars"}, {"producer_byte_rate": 1}),
        ({"user": ""}, {"producer_byte_rate": 1}),
        ({"ip": "10.0.0.1", "user": "ann"}, {"connection_creation_rate": 1}),
        ({"ip": "not an address"}, {"connection_creation_rate": 1}),
        ({"ip": "10.0.0.1"}, {"producer_byte_rate": 1}),
        ({"user": "ann"}, {"connection_creation_rate": 1}),
        ({"user": "ann"}, {"speed": 1}),
        ({"user": "ann"}, {"producer_byte_rate": 0}),
        ({"user": "ann"}, {"producer_byte_rate": -5}),
        ({"user": "ann"}, {"producer_byte_rate": 1.5}),
        ({"user": "ann"}, {"request_percentage": float("nan")}),
        ({"user": "ann"}, {"producer_byte_rate": float("inf")}),
        ({"ip": None}, {"connection_creation_rate": 2.0**40}),
    ],
)
def test_alteration_that_cannot_be_is_an_invalid_request(entity: Entity, limits: dict[str, float]) -> None:
    with pytest.raises(ApiError) as caught:
        check_alteration(alteration(entity, **limits))
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_alteration_with_fractions_and_removals_is_allowed() -> None:
    check_alteration(alteration({"user": "ann"}, request_percentage=0.5, controller_mutation_rate=0.1))
    check_alteration(alteration({"ip": "::1"}, connection_creation_rate=None))


ENTRIES = [quota(entity, number) for number, (entity, _) in enumerate(IN_ORDER, 1)]
IP_ENTRY = QuotaEntry(entity={"ip": None}, limits={"connection_creation_rate": 3.0})


@pytest.mark.parametrize(
    ("filters", "strict", "found"),
    [
        ([], False, [1, 2, 3, 4, 5, 6, 7, 8, 3.0]),
        ([], True, []),
        ([("user", 0, "ann")], False, [1, 2, 3]),
        ([("user", 0, "ann")], True, [3]),
        ([("user", 1, None)], True, [6]),
        ([("user", 2, None)], False, [1, 2, 3, 4, 5, 6]),
        ([("user", 2, None), ("client-id", 0, "app")], True, [1, 4]),
        ([("ip", 2, None)], False, [3.0]),
    ],
)
def test_describe_returns_entities_that_fulfil_all_filters(
    filters: list[tuple[str, int, str | None]], strict: bool, found: list[float]
) -> None:
    request = DescribeClientQuotas(
        filters=[QuotaFilter(entity_type=kind, match=match, name=name) for kind, match, name in filters], strict=strict
    )
    entries = describe(request, [*ENTRIES, IP_ENTRY])
    assert [limit for entry in entries for limit in entry.limits.values()] == found


@pytest.mark.parametrize(
    ("filters", "code"),
    [
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", 2, "ann")], ErrorCode.INVALID_REQUEST),
        ([("user", 3, None)], ErrorCode.INVALID_REQUEST),
        ([("", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("planet", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_describe_with_impossible_filters_is_refused(
    filters: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    request = DescribeClientQuotas(
        filters=[QuotaFilter(entity_type=kind, match=match, name=name) for kind, match, name in filters]
    )
    with pytest.raises(ApiError) as caught:
        describe(request, [])
    assert caught.value.code is code


def manager(*entries: QuotaEntry, meters_max: int = 100) -> ClientQuotaManager:
    made = ClientQuotaManager(PRODUCER_BYTE_RATE, QuotaWindows(), meters_max=meters_max)
    made.update_quotas(ClientQuotas(entries))
    return made


def test_clients_of_a_user_share_the_meter_of_a_user_quota() -> None:
    quotas = manager(quota({"user": "ann"}, 100))
    assert quotas.record("ann", "one", 1000, 0) == 0
    assert quotas.record("ann", "two", 1000, 0) == 10_000
    assert quotas.record("bob", "one", 10**9, 0) == 0


def test_default_user_gives_each_user_a_meter() -> None:
    quotas = manager(quota({"user": None}, 100))
    assert quotas.record("ann", "", 1000, 0) == 0
    assert quotas.record("bob", "", 1000, 0) == 0
    assert len(list(quotas.meters())) == 2


def test_changed_limit_applies_at_once_to_what_was_measured() -> None:
    quotas = manager(quota({"user": "ann"}, 100))
    assert quotas.record("ann", "", 1000, 0) == 0
    quotas.update_quotas(ClientQuotas([quota({"user": "ann"}, 50)]))
    assert quotas.record("ann", "", 0, 0) == 10_000
    quotas.update_quotas(ClientQuotas())
    assert quotas.record("ann", "", 10**9, 0) == 0
    assert not quotas.is_enabled


def test_delay_of_a_capped_manager_is_at_most_one_window() -> None:
    quotas = ClientQuotaManager(PRODUCER_BYTE_RATE, QuotaWindows(), throttle_max_ms=1000.0)
    quotas.update_quotas(ClientQuotas([quota({"user": "ann"}, 1)]))
    assert quotas.record("ann", "", 10**6, 0) == 1000


def test_meter_ends_an_hour_after_its_last_use() -> None:
    quotas = manager(quota({"user": None}, 100))
    quotas.record("ann", "", 10, 0)
    quotas.record("bob", "", 10, 3_000_000)
    quotas.record("carl", "", 10, 3_650_000)
    assert [meter.key.user for meter in quotas.meters()] == ["bob", "carl"]


def test_number_of_meters_is_bounded_by_dropping_the_least_used() -> None:
    quotas = manager(quota({"user": None}, 100), meters_max=20)
    for number in range(1000):
        quotas.record(f"user-{number}", "", 10, number)
        quotas.record("busy", "", 1, number)
        assert len(list(quotas.meters())) <= 20
    assert MeterKey("busy", None) in [meter.key for meter in quotas.meters()]
