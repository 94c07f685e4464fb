"""`frozen` of the ports behaves as attrs' own does."""

import copy
import inspect
import pickle
import pkgutil
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, ClassVar, TypeVar

import attrs
import pytest

import barnabas.core
import barnabas.ports
from barnabas.ports.values import Secret, define, frozen, quick_frozen

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
    part.number = 3  # type: ignore[misc]  # only the type checker refuses it, which makes it quick


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


def is_deferred(kind: type[Any]) -> bool:
    """Return whether attrs has not written `__init__` yet."""
    return kind.__dict__.get("_deferred") is not None


FEW = 100
"""The number of values of a type that are made before attrs writes its `__init__`."""


def test_init_is_written_once_a_type_has_many_values() -> None:
    @frozen
    class Some:
        text: str
        _hidden: int = 3
        items: list[int] = attrs.field(factory=list)

    made = [Some(str(number), hidden=number) for number in range(FEW)]
    assert is_deferred(Some)
    made.append(Some(str(FEW), hidden=FEW))
    assert not is_deferred(Some)
    assert [(each.text, each._hidden, each.items) for each in made] == [(str(n), n, []) for n in range(FEW + 1)]
    assert made[0].items is not made[1].items
    assert made[0] == Some("0", 0)
    with pytest.raises(attrs.exceptions.FrozenInstanceError):
        made[0].text = "b"  # type: ignore[misc]  # that is the question


@pytest.mark.parametrize("decorator", [frozen, define, quick_frozen])
@pytest.mark.parametrize("kw_only", [False, True])
@pytest.mark.parametrize(
    ("positional", "named"),
    [
        ((), {"one": 1}),
        ((1,), {}),
        ((1, 2), {"three": [3]}),
        ((), {}),
        ((1,), {"one": 1}),
        ((1,), {"four": 4}),
        ((1, 2, [3], 4), {}),
        ((), {"one": 1, "_two": 2}),
    ],
)
def test_first_values_take_the_arguments_that_attrs_takes(
    decorator: Any, kw_only: bool, positional: tuple[Any, ...], named: dict[str, Any]
) -> None:
    def answer(decorate: Any) -> str:
        @decorate(kw_only=kw_only)
        class Asked:
            one: int
            _two: int = 2
            three: list[int] = attrs.field(factory=list)

        try:
            return str(Asked(*positional, **named))
        except TypeError as error:
            return str(error).rpartition("Asked.")[2]

    expected = attrs.define if decorator is define else attrs.frozen
    assert answer(decorator) == answer(expected)


def test_checks_of_a_type_hold_for_its_first_value_and_later_ones() -> None:
    @frozen
    class Checked:
        size: int

        def __attrs_post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

    for _ in range(FEW + 2):
        assert Checked(1).size == 1
        with pytest.raises(ValueError, match="negative"):
            Checked(-1)


def test_init_with_converters_is_written_for_the_first_value() -> None:
    @frozen
    class Late:
        text: str
        number: int = attrs.field(default=3, converter=int)

    assert is_deferred(Late)
    with pytest.raises(TypeError, match=r"__init__\(\) missing 1 required positional argument: 'text'"):
        Late()  # type: ignore[call-arg]  # that is the question
    assert not is_deferred(Late)
    assert Late("a", number="7") == Late("a", 7)


@pytest.mark.parametrize("ask", [attrs.fields, inspect.signature, lambda kind: kind.__match_args__])
def test_question_for_the_fields_is_answered_before_the_first_value(ask: Callable[[type[Any]], object]) -> None:
    def answer(decorator: Callable[[type[Any]], type[Any]], base: type[Any]) -> str:
        more: object = attrs.field(factory=list, kw_only=True, metadata={"a": 1})
        annotations = {"kinds": ClassVar[list[str]], "number": int, "more": list[str]}
        asked = type("Asked", (base,), {"__annotations__": annotations, "kinds": [], "more": more})
        return str(ask(decorator(asked)))

    assert answer(frozen, Place) == answer(attrs.frozen, Place)
    assert answer(define, object) == answer(attrs.define, object)


def test_value_of_another_process_is_read_before_any_other_was_made() -> None:
    @define
    class Read:
        number: int = 0

    value = Read.__new__(Read)
    value.__setstate__({"number": 5})  # type: ignore[attr-defined]  # as pickle does
    assert is_deferred(Read)
    assert value.number == 5
    assert value == Read(5)


def test_subclass_without_decorator_and_post_init_work() -> None:
    @frozen(kw_only=True)
    class Checked:
        size: int

        def __attrs_post_init__(self) -> None:
            if self.size < 0:
                raise ValueError("negative")

    class Plain(Checked):
        pass

    assert Plain(size=3).size == 3
    with pytest.raises(ValueError, match="negative"):
        Checked(size=-1)


def test_define_compares_and_has_no_hash() -> None:
    @define
    class Counted:
        number: int

    counted = Counted(1)
    counted.number = 2
    assert counted == Counted(2)
    with pytest.raises(TypeError, match="unhashable"):
        hash(counted)


def test_rare_features_are_left_to_attrs() -> None:
    @frozen
    class Base:
        number: int

        def doubled(self) -> int:
            return 2 * self.number

    @frozen
    class Named(Base):
        def doubled(self) -> int:
            return super().doubled() + 1

    @frozen(slots=False)
    class Settings:
        size: int = attrs.field(default=1, validator=attrs.validators.ge(0))

    @define
    class Limited:
        size: int = attrs.field(validator=attrs.validators.ge(0))

    @frozen
    class Failure(Exception):
        code: int

    assert Named(2).doubled() == 5
    assert Settings().__dict__ == {"size": 1}
    with pytest.raises(ValueError, match="size"):
        Settings(size=-1)
    limited = Limited(1)
    with pytest.raises(ValueError, match="size"):
        limited.size = -1
    assert str(Failure(3)) == "3"
    with pytest.raises(Failure):
        raise Failure(3)


def value_types() -> Iterator[type[Any]]:
    for package in (barnabas.ports, barnabas.core):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            for value in list(vars(import_module(found.name)).values()):
                if isinstance(value, type) and value.__module__ == found.name and "_deferred" in value.__dict__:
                    yield value


def test_every_value_type_of_the_product_can_be_completed() -> None:
    kinds = list(value_types())
    assert len(kinds) > 300
    for kind in kinds:
        attrs.fields(kind)
        assert not is_deferred(kind)
