"""`frozen` of the ports behaves as attrs' own does."""

import copy
import pickle
from collections.abc import Callable
from typing import Any, TypeVar

import attrs
import pytest

from barnabas.ports.values import Secret, frozen, quick_frozen

T = TypeVar("T")
Decorator = Callable[[type[T]], type[T]]


@frozen(kw_only=True)
class Place:
    name: str
    size: int = 0
    content: bytes = attrs.field(default=b"", repr=lambda data: f"<{len(data)} bytes>")
    seen: int = attrs.field(default=0, eq=False, repr=False)


@frozen
class Empty:
    pass


@frozen
class Street(Place):
    houses: tuple[int, ...] = ()


@frozen(eq=False)
class Token:
    number: int


@frozen
class Folded:
    text: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Folded) and self.text.lower() == other.text.lower()

    def __hash__(self) -> int:
        return hash(self.text.lower())

    def __repr__(self) -> str:
        return self.text


def test_equal_by_class_and_fields() -> None:
    assert Place(name="a", size=1) == Place(name="a", size=1)
    assert Place(name="a", size=1) != Place(name="a", size=2)
    assert Place(name="a") == Place(name="a", seen=5)
    assert Place(name="a") != Street(name="a")
    something: object = "a"
    assert Place(name="a") != something
    assert Empty() == Empty()
    assert Street(name="a", houses=(1,)) != Street(name="a", houses=(2,))


def test_hashed_by_what_is_compared() -> None:
    assert len({Place(name="a"), Place(name="a", seen=1), Place(name="b"), Empty(), Empty()}) == 3
    with pytest.raises(TypeError, match="unhashable"):
        hash(Street(name="a", houses=[1]))  # type: ignore[arg-type]  # a list, which has no hash


def test_eq_false_leaves_identity() -> None:
    token = Token(1)
    assert token == token
    assert token != Token(1)
    assert len({token, Token(1)}) == 2


def test_value_class_preserves_own_methods() -> None:
    assert Folded("A") == Folded("a")
    assert len({Folded("A"), Folded("a")}) == 1
    assert repr(Folded("A")) == "A"


def test_shown_as_attrs_shows_it() -> None:
    assert repr(Place(name="a", content=b"xy")) == "Place(name='a', size=0, content=<2 bytes>)"
    assert repr(Empty()) == "Empty()"

    def shown(decorator: Callable[[type[Any]], type[Any]]) -> str:
        class Local:
            text: str
            other: int = 3

        return repr(decorator(Local)("x"))

    assert shown(frozen) == shown(attrs.frozen) == "Local(text='x', other=3)"


def test_values_of_requests_are_values_too() -> None:
    @quick_frozen
    class Part:
        topic: str
        number: int = 0
        content: bytes = attrs.field(default=b"", repr=lambda data: f"<{len(data)} bytes>")

    part = Part("a", 1, b"xy")
    assert part == Part("a", 1, b"xy") != Part("a", 2, b"xy")
    assert hash(part) == hash(Part("a", 1, b"xy"))
    assert repr(part) == f"{Part.__qualname__.rsplit('>.', 1)[-1]}(topic='a', number=1, content=<2 bytes>)"
    assert attrs.evolve(part, number=2) == Part("a", 2, b"xy")
    assert not hasattr(part, "__dict__")
    part.number = 3  # type: ignore[misc]  # nobody but the checker refuses it: that is what makes it quick


def test_frozen_slotted_and_known_to_attrs() -> None:
    place = Place(name="a")
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        place.name = "b"  # type: ignore[misc]  # that is the question
    assert not hasattr(place, "__dict__")
    assert attrs.evolve(place, size=2) == Place(name="a", size=2)
    assert attrs.asdict(place) == {"name": "a", "size": 0, "content": b"", "seen": 0}
    assert copy.copy(place) == pickle.loads(pickle.dumps(place)) == place


def test_secret_in_any_text_is_hidden() -> None:
    @frozen
    class Login:
        user: str
        password: Secret[str]

    secret = Secret("tiger")
    login = Login("scott", secret)
    assert "tiger" not in f"{secret} {secret!r} {login} {[secret]}"
    assert str(secret) == "[hidden]"
    assert login.password.value == "tiger"
    assert secret == Secret("tiger") != Secret("lion")
    assert Secret("tiger") != Secret(b"tiger")
    assert secret != "tiger"
    assert len({secret, Secret("tiger")}) == 1
    assert pickle.loads(pickle.dumps(secret)) == secret
    assert not Secret("")
