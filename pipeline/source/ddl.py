"""Types as SQL writes them (`id BIGINT, tags ARRAY<STRING>`), read where no Spark session is: in a Python worker."""

import re

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from ...ports.errors import ConfigError

_TOKEN = re.compile(r"\s*(?:(`(?:[^`]|``)+`|[A-Za-z_]\w*|\d+)|([<>(),:])|('(?:[^'\\]|\\.|'')*'))")
_SIMPLE: dict[str, type[DataType]] = {
    "boolean": BooleanType,
    "tinyint": ByteType,
    "byte": ByteType,
    "smallint": ShortType,
    "short": ShortType,
    "int": IntegerType,
    "integer": IntegerType,
    "bigint": LongType,
    "long": LongType,
    "float": FloatType,
    "real": FloatType,
    "double": DoubleType,
    "string": StringType,
    "binary": BinaryType,
    "date": DateType,
    "timestamp": TimestampType,
    "timestamp_ltz": TimestampType,
    "timestamp_ntz": TimestampNTZType,
}


def parse_ddl(text: str) -> DataType:
    """A list of columns as a struct, or a single type. Raises `ConfigError`."""
    reading = _Reading(text)
    if len(reading.tokens) == 1 or (len(reading.tokens) > 1 and reading.tokens[1] in ("<", "(")):
        found = reading.type()
    else:
        found = reading.fields("")
    if reading.tokens[reading.place :]:
        raise reading.wrong()
    return found


class _Reading:
    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens: list[str] = []
        self.place = 0
        position = 0
        while text[position:].strip():
            match = _TOKEN.match(text, position)
            if match is None:
                raise self.wrong()
            self.tokens.append(match[0].strip())
            position = match.end()
        if not self.tokens:
            raise self.wrong()

    def wrong(self) -> ConfigError:
        return ConfigError(
            f"{self.text!r} is no schema as SQL has it, such as: id BIGINT, name STRING, tags ARRAY<STRING>"
        )

    def next(self) -> str:
        if self.place >= len(self.tokens):
            raise self.wrong()
        self.place += 1
        return self.tokens[self.place - 1]

    def accept(self, *words: str) -> bool:
        there = [token.upper() for token in self.tokens[self.place : self.place + len(words)]]
        if there != list(words):
            return False
        self.place += len(words)
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            raise self.wrong()

    def fields(self, end: str) -> StructType:
        found: list[StructField] = []
        if end and self.accept(end):
            return StructType(found)
        while True:
            name = self.next()
            self.accept(":")
            kind = self.type()
            nullable = not self.accept("NOT", "NULL")
            metadata = {"comment": self.next()[1:-1].replace("''", "'")} if self.accept("COMMENT") else None
            found.append(StructField(name.strip("`").replace("``", "`"), kind, nullable, metadata))
            if end and self.accept(end):
                return StructType(found)
            if not self.accept(","):
                if end:
                    raise self.wrong()
                return StructType(found)

    def type(self) -> DataType:
        name = self.next().lower()
        if name in _SIMPLE:
            return _SIMPLE[name]()
        if name in ("decimal", "dec", "numeric"):
            return self.decimal()
        if name == "array":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return ArrayType(element)
        if name == "map":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return MapType(key, value)
        if name == "struct":
            self.expect("<")
            return self.fields(">")
        raise self.wrong()

    def decimal(self) -> DecimalType:
        if not self.accept("("):
            return DecimalType()
        precision = self.number()
        scale = self.number() if self.accept(",") else 0
        self.expect(")")
        return DecimalType(precision, scale)

    def number(self) -> int:
        word = self.next()
        if not word.isdigit():
            raise self.wrong()
        return int(word)
