"""Dataclasses, attrs classes and pydantic models as values: JSON, Avro and JSON Schema, both ways."""

import dataclasses
import datetime
import decimal
import enum
import json
import typing
import uuid
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import attrs
import pydantic
import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from hypothesis import given, settings
from hypothesis import strategies as st
from support.long_tests import examples
from support.registry_stub import RegistryStub, registry_stub

from barnabas.core.client.errors import EncodeError
from barnabas.plugins.builtin.encoders import JsonSerde
from barnabas.ports.errors import ConfigError, Malformed
from barnabas.schemas import AvroEncoder, JsonDecoder, JsonSchemaEncoder
from barnabas.schemas.encoders.typed import avro_of, json_schema_of

CONTEXT = SerializationContext("orders", MessageField.VALUE)
Price = Annotated[decimal.Decimal, (12, 2)]


class Size(enum.Enum):
    SMALL = "s"
    LARGE = "l"


@dataclasses.dataclass(frozen=True)
class DataLine:
    article: str
    count: int = 1


@dataclasses.dataclass(frozen=True)
class DataOrder:
    id: int
    at: datetime.datetime
    day: datetime.date
    opens: datetime.time
    lines: list[DataLine]
    price: Price
    customer: uuid.UUID
    paid: bool
    kind: Literal["web", "shop"] = "web"
    size: Size = Size.SMALL
    note: str | None = None
    discount: Annotated[decimal.Decimal | None, (6, 2)] = None
    tags: frozenset[str] = frozenset()
    extra: dict[str, float] = dataclasses.field(default_factory=dict)
    best: DataLine | None = None
    raw: bytes = b""


@attrs.frozen
class AttrsLine:
    article: str
    count: int = 1


@attrs.frozen
class AttrsOrder:
    id: int
    at: datetime.datetime
    day: datetime.date
    opens: datetime.time
    lines: list[AttrsLine]
    price: Price
    customer: uuid.UUID
    paid: bool
    kind: Literal["web", "shop"] = "web"
    size: Size = Size.SMALL
    note: str | None = None
    discount: Annotated[decimal.Decimal | None, (6, 2)] = None
    tags: frozenset[str] = frozenset()
    extra: dict[str, float] = attrs.field(factory=dict)
    best: AttrsLine | None = None
    raw: bytes = b""


class ModelLine(pydantic.BaseModel):
    article: str
    count: int = 1


class ModelOrder(pydantic.BaseModel):
    id: int
    at: datetime.datetime
    day: datetime.date
    opens: datetime.time
    lines: list[ModelLine]
    price: decimal.Decimal = pydantic.Field(max_digits=12, decimal_places=2)
    customer: uuid.UUID
    paid: bool
    kind: Literal["web", "shop"] = "web"
    size: Size = Size.SMALL
    note: str | None = None
    discount: Annotated[decimal.Decimal | None, (6, 2)] = None
    tags: frozenset[str] = frozenset()
    extra: dict[str, float] = pydantic.Field(default_factory=dict)
    best: ModelLine | None = None
    raw: bytes = b""


KINDS = {"dataclass": (DataOrder, DataLine), "attrs": (AttrsOrder, AttrsLine), "pydantic": (ModelOrder, ModelLine)}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
PLAIN = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "at": st.datetimes(timezones=st.just(datetime.UTC)),
        "day": st.dates(),
        "opens": st.times(),
        "lines": st.lists(st.fixed_dictionaries({"article": TEXTS, "count": st.integers(0, 9)}), max_size=2),
        "price": st.decimals("-9999", "9999", places=2),
        "customer": st.uuids(),
        "paid": st.booleans(),
    },
    optional={
        "kind": st.sampled_from(["web", "shop"]),
        "size": st.sampled_from(Size),
        "note": st.none() | TEXTS,
        "discount": st.none() | st.decimals("-99", "99", places=2),
        "tags": st.frozensets(TEXTS, max_size=2),
        "extra": st.dictionaries(TEXTS, st.floats(allow_nan=False, allow_infinity=False), max_size=2),
        "best": st.none() | st.fixed_dictionaries({"article": TEXTS}),
        "raw": TEXTS.map(str.encode),
    },
)


def made(kind: str, plain: dict[str, Any]) -> Any:
    order, line = KINDS[kind]
    best = plain.get("best")
    return order(
        **{**plain, "lines": [line(**each) for each in plain["lines"]], "best": None if best is None else line(**best)}
    )


@pytest.fixture(scope="module")
def stub() -> Iterator[RegistryStub]:
    with registry_stub() as running:
        yield running


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=examples(100))
@given(plain=PLAIN)
def test_object_through_json_comes_back_equal(kind: str, plain: dict[str, Any]) -> None:
    value = made(kind, plain)
    data = JsonSerde().encode("orders", value)
    assert JsonDecoder(KINDS[kind][0]).decode("orders", data) == value


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("encoder", [AvroEncoder, JsonSchemaEncoder])
@settings(max_examples=examples(60))
@given(plain=PLAIN)
def test_object_with_a_schema_comes_back_equal(
    stub: RegistryStub, encoder: Any, kind: str, plain: dict[str, Any]
) -> None:
    value, topic = made(kind, plain), f"orders-{kind}-{encoder.__name__}"
    assert encoder(stub.url, KINDS[kind][0]).decode(topic, encoder(stub.url).encode(topic, value)) == value


AN_ORDER: dict[str, Any] = {
    "id": 7,
    "at": datetime.datetime(2011, 6, 12, 9, 30, tzinfo=datetime.UTC),
    "day": datetime.date(2011, 6, 12),
    "opens": datetime.time(9),
    "lines": [{"article": "book", "count": 2}, {"article": "pen"}],
    "price": decimal.Decimal("12.50"),
    "customer": uuid.UUID(int=5),
    "paid": True,
    "size": Size.LARGE,
    "extra": {"weight": 0.5},
}


@pytest.mark.parametrize("kind", KINDS)
def test_confluents_client_reads_and_writes_the_schema_of_a_class(stub: RegistryStub, kind: str) -> None:
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer  # 1.5 s: 38 grammars

    theirs, value = SchemaRegistryClient({"url": stub.url}), made(kind, AN_ORDER)
    ours = AvroEncoder(stub.url, KINDS[kind][0])
    read: Any = AvroDeserializer(theirs)(ours.encode("orders", value), CONTEXT)
    assert (read["size"], read["lines"][0]["article"], read["price"]) == ("LARGE", "book", decimal.Decimal("12.50"))
    again = AvroSerializer(theirs, json.dumps(avro_of(KINDS[kind][0])))(read, CONTEXT)
    assert ours.decode("orders", again) == value
    ours_json = JsonSchemaEncoder(stub.url, KINDS[kind][0])
    read = JSONDeserializer(None, schema_registry_client=theirs)(ours_json.encode("orders", value), CONTEXT)
    assert (read["size"], read["at"][:19], read["customer"]) == ("l", "2011-06-12T09:30:00", str(value.customer))
    again = JSONSerializer(json.dumps(json_schema_of(KINDS[kind][0])), theirs)(read, CONTEXT)
    assert ours_json.decode("orders", again) == value


def test_avro_schema_of_the_three_kinds_is_the_same() -> None:
    def plain(cls: type) -> str:
        return json.dumps(avro_of(cls)).replace(cls.__name__.removesuffix("Order"), "")

    assert plain(DataOrder) == plain(AttrsOrder) == plain(ModelOrder)
    fields = {each["name"]: each for each in avro_of(DataOrder)["fields"]}
    assert fields["at"]["type"]["logicalType"] == "timestamp-micros"
    assert fields["price"]["type"] == {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2}
    assert fields["size"] == {
        "name": "size",
        "type": {"type": "enum", "name": "Size", "symbols": ["SMALL", "LARGE"]},
        "default": "SMALL",
    }
    assert (fields["note"]["type"], fields["note"]["default"]) == (["null", "string"], None)
    assert (fields["tags"]["default"], fields["extra"]["default"]) == ([], {})
    assert fields["best"]["type"] == ["null", "DataLine"]


class Tree(pydantic.BaseModel):
    name: str
    children: list["Tree"] = pydantic.Field(default_factory=list)


@dataclasses.dataclass
class Branch:
    name: str
    children: list["Branch"]
    leaf: Tree | None = None


@pytest.mark.parametrize("encoder", [AvroEncoder, JsonSchemaEncoder])
@pytest.mark.parametrize(
    "value",
    [
        Tree(name="a", children=[Tree(name="b")]),
        Branch("a", [Branch("b", [])], Tree(name="c", children=[Tree(name="d")])),
    ],
)
def test_recursive_class_goes_through_with_a_schema(stub: RegistryStub, encoder: Any, value: Any) -> None:
    topic = f"{type(value).__name__}-{encoder.__name__}"
    assert encoder(stub.url, type(value)).decode(topic, encoder(stub.url).encode(topic, value)) == value
    assert JsonDecoder(type(value)).decode(topic, JsonSerde().encode(topic, value)) == value


def test_alias_of_a_model_is_the_name_in_messages(stub: RegistryStub) -> None:
    class Aliased(pydantic.BaseModel):
        order_id: int = pydantic.Field(alias="orderId")

    value = Aliased(orderId=5)
    assert JsonSerde().encode("t", value) == b'{"orderId":5}'
    assert JsonDecoder(Aliased).decode("t", b'{"orderId":5}') == value
    for encoder in (AvroEncoder, JsonSchemaEncoder):
        topic = f"aliased-{encoder.__name__}"
        data = encoder(stub.url).encode(topic, value)
        assert encoder(stub.url).decode(topic, data) == {"orderId": 5}
        assert encoder(stub.url, Aliased).decode(topic, data) == value


def test_several_types_of_a_field_keep_their_type(stub: RegistryStub) -> None:
    @dataclasses.dataclass
    class Mixed:
        thing: int | str | None

    for encoder in (AvroEncoder, JsonSchemaEncoder):
        for value in (Mixed(5), Mixed("5"), Mixed(None)):
            topic = f"mixed-{encoder.__name__}"
            assert encoder(stub.url, Mixed).decode(topic, encoder(stub.url).encode(topic, value)) == value


class D:
    """A class without known fields."""


@dataclasses.dataclass
class HasD:
    it: list[D]


def test_json_form_of_every_kind_is_the_documented_one() -> None:
    value = {
        "at": AN_ORDER["at"],
        "day": AN_ORDER["day"],
        "opens": AN_ORDER["opens"],
        "price": AN_ORDER["price"],
        "customer": AN_ORDER["customer"],
        "size": Size.LARGE,
        "tags": {"b", "a"},
        "lines": (DataLine("a"), AttrsLine("b"), ModelLine(article="c")),
        "raw": b"\0\1",
    }
    assert json.loads(JsonSerde().encode("t", value) or b"") == {
        "at": "2011-06-12T09:30:00+00:00",
        "day": "2011-06-12",
        "opens": "09:00:00",
        "price": "12.50",
        "customer": "00000000-0000-0000-0000-000000000005",
        "size": "l",
        "tags": ["a", "b"],
        "lines": [{"article": "a", "count": 1}, {"article": "b", "count": 1}, {"article": "c", "count": 1}],
        "raw": "AAE=",
    }


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (
            D(),
            r"^D is neither a dataclass, an attrs class nor a pydantic model, and has no JSON form; convert it: encod",
        ),
        ({"at": [1, D()]}, r"^at\[1\]: D is neither a dataclass, an attrs class nor a pydantic model, and has no"),
        (DataLine(article="a", count=D()), r"^count: D is neither"),  # type: ignore[arg-type]  # on purpose
        ({"x": {(1, 2): 3}}, r"^x: a key of the dict is of type tuple, and JSON has texts; convert it: encoder="),
        (b"raw", 'bytes are no JSON value; encoder="bytes" sends them as they are'),
    ],
)
def test_json_encoder_names_the_part_that_has_no_json_form(value: Any, why: str) -> None:
    with pytest.raises(TypeError, match=why):
        JsonSerde().encode("t", value)


@pytest.mark.parametrize(
    ("cls", "data", "why"),
    [
        (DataLine, b'{"count": 1}', r"^not a valid DataLine: required field missing @ value.article"),
        (DataLine, b'{"article": 5}', r"^not a valid DataLine: .*\(expected str, got int\) @ value.article"),
        (DataLine, b'{"article": "a", "count": "5"}', r"expected a whole number, got '5'\) @ value.count"),
        (AttrsLine, b'{"article": "a", "count": null}', r"expected a whole number, got None\) @ value.count"),
        (ModelLine, b'{"article": 5}', r"^not a valid ModelLine: article: Input should be a valid string"),
        (list[DataLine], b'[{"article": "a"}, {}]', r"required field missing @ value\[1\].article"),
        (ModelLine, b"{", r"^not a valid ModelLine: value: Invalid JSON"),
        (DataLine, b"{", "Expecting property name"),
    ],
)
def test_json_decoder_names_the_wrong_field(cls: Any, data: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        JsonDecoder(cls).decode("t", data)


def test_class_without_fields_is_refused_with_the_way_out(stub: RegistryStub) -> None:
    what = "D is neither a dataclass, an attrs class nor a pydantic model"
    for encoder in (AvroEncoder, JsonSchemaEncoder):
        with pytest.raises(ConfigError, match=f"^{what}, so no schema can be made of it; .*encoder=lambda v: ..."):
            encoder(stub.url, D)
        with pytest.raises(ConfigError, match=f"^{what}"):
            encoder(stub.url).encode("t", D())
        with pytest.raises(
            ConfigError, match=r"^HasD.it\[\]: D is neither .*; give the field one: dataclasses.field\("
        ):
            encoder(stub.url).encode("t", HasD([D()]))
        with pytest.raises(ConfigError, match="complex is not a schema; give a class, a text, a Path or parsed JSON"):
            encoder(stub.url, 5j)
    with pytest.raises(ConfigError, match=f"^JsonDecoder: {what}; .*decoder=lambda data: ..."):
        JsonDecoder(D)


def test_avro_encoder_names_the_field_that_does_not_match(stub: RegistryStub) -> None:
    wrong = dataclasses.replace(made("dataclass", AN_ORDER), lines=[DataLine(5)])  # type: ignore[arg-type]  # on purpose
    with pytest.raises(Malformed, match=r"Avro schema DataOrder \(\d+\): DataOrder.lines.DataLine.article is <5>"):
        AvroEncoder(stub.url).encode("wrong", wrong)
    with pytest.raises(Malformed, match="D is no dict, and neither a dataclass, an attrs class nor a pydantic model"):
        AvroEncoder(stub.url, DataLine).encode("wrong-too", D())


@pytest.mark.parametrize("cls", [AvroEncoder, JsonSchemaEncoder])
def test_field_without_a_schema_is_named_with_its_path(stub: RegistryStub, cls: Any) -> None:
    @dataclasses.dataclass
    class Inner:
        took: datetime.timedelta

    @dataclasses.dataclass
    class Outer:
        inner: dict[str, Inner]

    class Model(pydantic.BaseModel):
        took: complex = 0j

    @dataclasses.dataclass
    class Given:
        took: datetime.timedelta = dataclasses.field(metadata={"avro": "long", "json-schema": {"type": "integer"}})

    @dataclasses.dataclass
    class Pairs:
        pair: tuple[int, str]

    with pytest.raises(ConfigError, match=r"Outer.inner\[\].took: timedelta has no .*dataclasses.field\(metadata="):
        cls(stub.url, Outer)
    if cls is AvroEncoder:
        with pytest.raises(ConfigError, match=r"Model.took: complex has no .*Field\(json_schema_extra={'avro': ...}\)"):
            cls(stub.url, Model)
    with pytest.raises(ConfigError, match=r"Pairs.pair: the items of tuple\[int, str\] are of several types"):
        cls(stub.url, Pairs)
    cls(stub.url, Given)


def test_two_classes_of_one_name_are_refused() -> None:
    @dataclasses.dataclass
    class DataLine:
        other: int

    @dataclasses.dataclass
    class Both:
        ours: DataLine
        theirs: Any

    Both.__annotations__["theirs"] = KINDS["dataclass"][1]
    for schema_of in (avro_of, json_schema_of):
        with pytest.raises(ConfigError, match=r"Both\.theirs: the schema has another class named DataLine; rename one"):
            schema_of(Both)


def test_annotation_that_names_no_class_is_named() -> None:
    @dataclasses.dataclass
    class Wrong:
        it: "Nowhere"  # type: ignore[name-defined]  # noqa: F821  # on purpose

    with pytest.raises(ConfigError, match="an annotation of Wrong names no class: name 'Nowhere' is not defined"):
        avro_of(Wrong)


def test_class_as_decoder_is_refused_with_the_right_decoder() -> None:
    from barnabas import Consumer, Producer

    wrong: Any = DataLine
    with pytest.raises(ConfigError, match=r"decoder: DataLine is the class of the values; .*JsonDecoder\(DataLine\)"):
        Consumer("127.0.0.1:1", decoder=wrong)
    with pytest.raises(ConfigError, match=r'encoder: DataLine is the class of the values; for JSON give "json"'):
        Producer("127.0.0.1:1", encoder=wrong)


def test_field_that_the_constructor_does_not_take_stays_out_of_the_schema(stub: RegistryStub) -> None:
    @dataclasses.dataclass
    class Counted:
        a: int
        total: int = dataclasses.field(init=False, default=0)
        shared: typing.ClassVar[int] = 3

    assert [each["name"] for each in avro_of(Counted)["fields"]] == ["a"]
    assert AvroEncoder(stub.url, Counted).decode("c", AvroEncoder(stub.url).encode("c", Counted(4))) == Counted(4)


def test_encode_error_names_the_field_for_the_sender() -> None:
    from barnabas import Producer

    with (
        Producer("127.0.0.1:1", encoder="json") as producer,
        pytest.raises(EncodeError, match="orders cannot be encoded: at"),
    ):
        producer.send("orders", {"at": D()})
