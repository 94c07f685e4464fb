"""The offset map beside a dict."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.log.compaction import offset_map
from barnabas.core.log.compaction.offset_map import OffsetMap

_rounds = st.lists(st.lists(st.integers(0, 60).map(lambda n: b"key %d" % n), min_size=1, max_size=9), max_size=30)


@given(_rounds, st.integers(1, 40), st.booleans())
def test_offset_map_knows_last_offset_of_each_key(rounds: list[list[bytes]], limit: int, at_once: bool) -> None:
    known: dict[bytes, int] = {}
    noted = OffsetMap(limit, b"secret")
    before, offset_map._PENDING_MAX = offset_map._PENDING_MAX, 0 if at_once else 20_000
    try:
        for number, keys in enumerate(rounds):
            offsets = range(number * 100, number * 100 + len(keys))
            fits = len({**known, **dict.fromkeys(keys)}) <= limit
            assert noted.add(keys, offsets) == fits
            if not fits:
                break
            known.update(zip(keys, offsets, strict=True))
    finally:
        offset_map._PENDING_MAX = before
    assert len(noted) == len(known)
    assert noted.latest([*known, b"another"]) == [*known.values(), -1]
    assert sorted(noted.offsets()) == sorted(known.values())


def test_another_secret_is_another_table() -> None:
    one, other = OffsetMap(100, b"one"), OffsetMap(100, b"other")
    keys = [b"%d" % number for number in range(100)]
    for each in (one, other):
        assert each.add(keys, range(100))
        assert each.latest(keys) == list(range(100))
    assert list(one.offsets()) != list(other.offsets())
