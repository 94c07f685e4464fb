from hypothesis import given
from hypothesis import strategies as st

from barnabas.core.cluster.image import ImmutableMap

KEYS = st.integers(0, 60)
CHANGES = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.integers())), max_size=150)


@given(start=st.dictionaries(KEYS, st.integers()), changes=CHANGES)
def test_immutable_map_equals_dict_in_every_version(
    start: dict[int, int], changes: list[tuple[int, int | None]]
) -> None:
    versions = [(ImmutableMap(start), dict(start))]
    for key, value in changes:
        layered, plain = versions[-1]
        plain = dict(plain)
        if value is None:
            plain.pop(key, None)
            versions.append((layered.drop(key), plain))
        else:
            plain[key] = value
            versions.append((layered.put(key, value), plain))
    for layered, plain in versions:
        assert layered == plain
        assert len(layered) == len(plain) == len(list(layered))
        assert all(layered.get(key, "no") == plain.get(key, "no") for key in range(61))
        assert all((key in layered) == (key in plain) for key in range(61))


@given(start=st.dictionaries(KEYS, st.integers()), more=st.dictionaries(KEYS, st.integers()))
def test_many_at_once(start: dict[int, int], more: dict[int, int]) -> None:
    before = ImmutableMap(start)
    assert before.put_all(more) == {**start, **more}
    assert before == start


def test_replaced_entry_keeps_its_place_and_new_entry_comes_last() -> None:
    made = ImmutableMap({"a": 1, "b": 2}).put("c", 3).put("a", 4).drop("b")
    assert list(made.items()) == [("a", 4), ("c", 3)]


def test_a_change_shares_the_entries() -> None:
    large = ImmutableMap(dict.fromkeys(range(10_000)))
    bases = {id(large._base)}
    for key in range(1000):
        large = large.put(key + 10_000, None)
        bases.add(id(large._base))
        assert len(large._over) <= 110
    assert len(bases) <= 12


def test_dropping_what_is_not_there_changes_nothing() -> None:
    some = ImmutableMap({"a": 1})
    assert some.drop("b") is some
