"""Bytes that are known from elsewhere."""

import pytest
from support.kafka_frames import ServerEnd

from barnabas.adapters.wire_kafka.table import BY_KEY

OF_KAFKA = {key for key, api in BY_KEY.items() if not (api.is_own or api.is_unlisted)}
APIS = len(OF_KAFKA) + 3
"""And ApiVersions, SaslHandshake and SaslAuthenticate, which the connection answers itself."""


def test_api_versions_as_clients_of_version_3_ask() -> None:
    end = ServerEnd()
    end.send(bytes.fromhex("0012 0003 00000007 0002 6331 00 04 6b7079 04 312e30 00"))
    (answer,) = end.answers
    assert answer[:6] == bytes.fromhex("00000007 0000")
    count = answer[6] - 1
    entries = [answer[7 + 7 * i : 14 + 7 * i] for i in range(count)]
    found = {int.from_bytes(e[:2], "big"): (e[3], e[5]) for e in entries}
    assert found.keys() == {17, 18, 36, *OF_KAFKA}
    assert (
        found.items()
        >= {
            0: (0, 13),
            1: (4, 18),
            2: (1, 11),
            3: (0, 13),
            8: (2, 10),
            9: (1, 10),
            10: (0, 6),
            11: (0, 9),
            12: (0, 4),
            13: (0, 5),
            14: (0, 5),
            15: (0, 6),
            16: (0, 5),
            18: (0, 5),
            19: (2, 7),
            20: (1, 6),
            21: (0, 2),
            22: (0, 5),
            24: (0, 5),
            25: (0, 4),
            26: (0, 5),
            28: (0, 6),
            32: (1, 4),
            35: (0, 5),
            37: (0, 3),
            42: (0, 3),
            44: (0, 1),
            47: (0, 0),
            45: (0, 1),
            60: (0, 2),
            61: (0, 0),
            66: (0, 2),
        }.items()
    )
    assert all(e[6] == 0 for e in entries)
    assert answer[7 + 7 * count :] == bytes(5)  # throttle time, no tagged fields


def test_an_unknown_version_of_api_versions_is_answered_in_version_0() -> None:
    end = ServerEnd()
    end.send(bytes.fromhex("0012 0006 00000007 ffff dead beef"))
    assert end.answers == [bytes.fromhex("00000007 0023 00000001 0012 0000 0005")]
    assert not end.connection.is_closed


# ApiVersions 5 (KIP-1242): software "k" "1", then the cluster and the broker that the client means.
_ASKS = "0012 0005 00000007 0002 6331 00 02 6b 02 31"


@pytest.mark.parametrize(
    ("means", "error"),
    [
        ("00 ffffffff 00", "0000"),
        ("02 43 00000001 00", "0000"),
        ("02 43 00000002 00", "0081"),
        ("02 44 00000001 00", "0081"),
        ("02 43 ffffffff 00", "002a"),
        ("00 00000001 00", "002a"),
    ],
)
def test_a_client_that_means_another_broker_is_sent_to_its_bootstrap_servers(means: str, error: str) -> None:
    end = ServerEnd(identity=("C", 1))
    end.send(bytes.fromhex(_ASKS + means))
    (answer,) = end.answers
    assert answer[:6] == bytes.fromhex("00000007" + error)
    if error != "0000":
        assert answer[6:] == bytes.fromhex("01 00000000 00"), "no versions, no throttle time, no tagged fields"
    assert not end.connection.is_closed


def test_api_versions_0() -> None:
    end = ServerEnd()
    end.send(bytes.fromhex("0012 0000 00000009 ffff"))
    (answer,) = end.answers
    assert answer[:10] == bytes.fromhex("00000009 0000") + APIS.to_bytes(4, "big")
    assert len(answer) == 10 + APIS * 6


def test_api_versions_1_ends_with_a_throttle_time() -> None:
    end = ServerEnd()
    end.send(bytes.fromhex("0012 0001 00000009 0000"))
    (answer,) = end.answers
    assert len(answer) == 10 + APIS * 6 + 4
