"""JSON Schemas of any draft that `jsonschema` supports, with their references."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from referencing import Registry
from referencing.exceptions import NoSuchResource, Unresolvable
from referencing.jsonschema import DRAFT3, DRAFT4, DRAFT6, DRAFT7, specification_with

from ...ports.values import frozen
from .bounded_json import read_json, write_json
from .parsed import JSON, Difference, InvalidSchema, Referenced

_NOT_SCHEMAS = frozenset({"enum", "const", "default", "examples"})


# Compatibility of JSON Schemas: whether a schema allows every document that another one allows.
#
# The check is by form, and conservative: what cannot be proved is a difference. Regular expressions are compared,
# never run. As in Confluent's registry, a property that becomes required and has a default is no difference.


STEPS_MAX = 20_000
"""Maximum number of steps of a comparison: some schemas would take for ever."""


@frozen(eq=False)
class Subschema:
    """A schema with the resolver of its references. `alone`: up to draft 7, `$ref` excludes other keywords."""

    value: Any
    resolver: Any
    alone: bool

    def inner(self, value: Any) -> Subschema:
        """Return a schema within this one."""
        if isinstance(value, dict) and isinstance(value.get("$id"), str):
            from referencing.jsonschema import DRAFT7, specification_with

            draft = specification_with(str(value.get("$schema", "")), default=DRAFT7)
            return Subschema(value, self.resolver.in_subresource(draft.create_resource(value)), self.alone)
        return Subschema(value, self.resolver, self.alone)

    @property
    def refers(self) -> bool:
        """Return True for a reference, perhaps with other keywords."""
        return isinstance(self.value, dict) and isinstance(self.value.get("$ref"), str)

    def follow(self) -> Subschema:
        """Return the target of `$ref`. Raises `referencing.exceptions.Unresolvable`."""
        found = self.resolver.lookup(self.value["$ref"])
        return Subschema(found.contents, found.resolver, self.alone)

    @property
    def never(self) -> bool:
        """Return True if nothing is valid."""
        return self.value is False


def same_words(one: Subschema, other: Subschema) -> set[tuple[int, int]]:
    """Return pairs of ids of all their values if they are equal, including referenced schemas; else empty."""
    seen: set[tuple[int, int]] = set()
    return seen if _same(one, other, seen) else set()


def _same(one: Subschema, other: Subschema, seen: set[tuple[int, int]]) -> bool:
    if (pair := (id(one.value), id(other.value))) in seen:
        return True
    seen.add(pair)
    if type(one.value) is not type(other.value):
        return False
    if isinstance(one.value, list):
        if len(one.value) != len(other.value):
            return False
        pairs = zip(one.value, other.value, strict=True)
        return all(_same(one.inner(mine), other.inner(theirs), seen) for mine, theirs in pairs)
    if not isinstance(one.value, dict):
        return bool(one.value == other.value)
    if one.value.keys() != other.value.keys() or (one.refers and not _same(one.follow(), other.follow(), seen)):
        return False
    return all(_same(one.inner(one.value[key]), other.inner(other.value[key]), seen) for key in one.value)


def conjuncts(place: Subschema) -> list[Subschema]:
    """Return schemas without `allOf` and `$ref` that together are equivalent. A circular reference adds nothing."""
    found: list[Subschema] = []
    seen: set[int] = set()

    def visit(each: Subschema) -> None:
        if id(each.value) in seen:
            return
        seen.add(id(each.value))
        if each.refers:
            visit(each.follow())
            if each.alone:
                return
        if isinstance(each.value, dict):
            for inner in each.value.get("allOf", ()):
                visit(each.inner(inner))
        found.append(each)

    visit(place)
    return found


def demands(parts: list[Subschema], key: str) -> Iterator[tuple[Any, Subschema]]:
    """Yield the values of a keyword in the conjuncts."""
    for part in parts:
        if isinstance(part.value, dict) and key in part.value:
            yield part.value[key], part


class Choices:
    """Splits schemas by their alternatives. A schema without its alternative is created once, and compared once."""

    def __init__(self) -> None:
        self._plain: dict[tuple[int, str], dict[str, Any]] = {}

    def of(self, parts: list[Subschema]) -> list[list[Subschema]]:
        """Return conjuncts for each branch of the first `anyOf` or `oneOf`; empty without one."""
        for part in parts:
            for key in ("oneOf", "anyOf") if isinstance(part.value, dict) else ():
                if key in part.value:
                    rest = [each for each in parts if each is not part] + [part.inner(self._without(part.value, key))]
                    return [[*rest, *conjuncts(part.inner(branch))] for branch in part.value[key]]
        return []

    def _without(self, schema: dict[str, Any], key: str) -> dict[str, Any]:
        known = self._plain.get((id(schema), key))
        if known is None:
            known = self._plain[id(schema), key] = {name: schema[name] for name in schema if name != key}
        return known


class Comparing(Protocol):
    """The comparison that uses these parts."""

    def compare(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]: ...

    def reads(self, reader: Subschema, writer: list[Subschema], path: str) -> bool: ...


def object_differences(comparing: Comparing, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
    """Compare members by name, by patterns of names, and all others. Names are not matched against patterns: a possible
    match counts for a requirement, and not for a permission."""
    found: list[Difference] = []
    own, known = reader.value.get("properties", {}), _named(writer)
    for name, schema in own.items():
        where = f"{path}/properties/{name}"
        differences = comparing.compare(reader.inner(schema), _property(writer, name), where)
        if differences and name not in known:
            text = f"{{writer}} does not know property {name}, and so allows anything there"
            differences = [Difference("PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL", where, text)]
        found += differences
    patterns = reader.value.get("patternProperties", {})
    if "additionalProperties" not in reader.value and not patterns:
        return found
    rest = reader.inner(reader.value.get("additionalProperties", True))
    by_pattern = [reader.inner(schema) for schema in patterns.values()]
    for name in sorted(known | own.keys()):
        wanted = by_pattern if name in own else [*by_pattern, rest]
        where, given = f"{path}/properties/{name}", _property(writer, name)
        if not all(comparing.reads(each, given, where) for each in wanted):
            text = f"{{reader}} does not take property {name} as {{writer}} allows it"
            found.append(Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", where, text))
    return found + _unnamed(comparing, reader, rest, writer, path)


def _unnamed(
    comparing: Comparing, reader: Subschema, rest: Subschema, writer: list[Subschema], path: str
) -> list[Difference]:
    """Compare members that neither schema names."""
    found = []
    patterns = {key: reader.inner(schema) for key, schema in reader.value.get("patternProperties", {}).items()}
    theirs = {pattern for value, _ in demands(writer, "patternProperties") for pattern in value}
    for pattern in sorted(patterns.keys() | theirs):
        where, given = f"{path}/patternProperties/{pattern}", _by_pattern(writer, pattern)
        wanted = [patterns[pattern]] if pattern in patterns else [*patterns.values(), rest]
        if not all(comparing.reads(each, given, where) for each in wanted):
            found.append(Difference("PATTERN_PROPERTY_NARROWED", where, "{writer} allows more there"))
    additional = [
        each for value, part in demands(writer, "additionalProperties") for each in conjuncts(part.inner(value))
    ]
    where = f"{path}/additionalProperties"
    if not comparing.reads(rest, additional, where):
        text = "{writer} allows properties that {reader} does not"
        found.append(Difference("ADDITIONAL_PROPERTIES_NARROWED", where, text))
    return found


def _named(writer: list[Subschema]) -> set[str]:
    return {name for value, _ in demands(writer, "properties") for name in value}


def _property(writer: list[Subschema], name: str) -> list[Subschema]:
    """Return the schemas for a member of that name: in each conjunct its own, or the one of all others."""
    found: list[Subschema] = []
    for part in writer:
        if not isinstance(part.value, dict):
            continue
        if name in part.value.get("properties", {}):
            found += conjuncts(part.inner(part.value["properties"][name]))
        elif "patternProperties" not in part.value and "additionalProperties" in part.value:
            found += conjuncts(part.inner(part.value["additionalProperties"]))
    return found


def _by_pattern(writer: list[Subschema], pattern: str) -> list[Subschema]:
    """Return the schemas for unnamed members whose names match the pattern."""
    found: list[Subschema] = []
    for part in writer:
        if not isinstance(part.value, dict):
            continue
        own = part.value.get("patternProperties", {})
        if pattern in own:
            found += conjuncts(part.inner(own[pattern]))
        elif not own and "additionalProperties" in part.value:
            found += conjuncts(part.inner(part.value["additionalProperties"]))
    return found


# Compatibility of single keywords of JSON Schema.

TYPES = frozenset({"null", "boolean", "object", "array", "number", "integer", "string"})
_AT_LEAST = {"minLength": "string", "minItems": "array", "minProperties": "object"}
_AT_MOST = {"maxLength": "string", "maxItems": "array", "maxProperties": "object"}
_FOUND = tuple[str, str, str]
"""Kind of the difference, keyword, text."""


def types_of(parts: list[Subschema]) -> frozenset[str]:
    """Return the allowed types; integers are listed in addition to numbers."""
    found = TYPES
    for value, _ in demands(parts, "type"):
        named = {value} if isinstance(value, str) else set(value)
        found &= frozenset(named | ({"integer"} if "number" in named else set()))
    values = values_of(parts)
    if values is not None:
        found &= {kind for value in values for kind in _kinds(value)}
    return frozenset() if any(part.never for part in parts) else found


def values_of(parts: list[Subschema]) -> list[Any] | None:
    """Return the allowed values if they are enumerated, else None."""
    for value, _ in demands(parts, "const"):
        return [value]
    lists = [value for value, _ in demands(parts, "enum")]
    return min(lists, key=len) if lists else None


def plain(reader: dict[str, Any], writer: list[Subschema]) -> Iterator[_FOUND]:
    """Yield the differences of keywords for a value itself, not for its content."""
    types = types_of(writer)
    if "type" in reader:
        allowed = {reader["type"]} if isinstance(reader["type"], str) else set(reader["type"])
        extra = types - allowed - ({"integer"} if "number" in allowed else set())
        if extra:
            kind = "TYPE_NARROWED" if types & allowed else "TYPE_CHANGED"
            yield kind, "type", f"{{writer}} allows {', '.join(sorted(extra))}, {{reader}} does not"
    yield from _values(reader, values_of(writer))
    for key, kind in _AT_LEAST.items():
        if key in reader and kind in types and max(_lower(writer, key), 0) < reader[key]:
            yield _kind(key), key, f"{{writer}} allows less than {reader[key]}"
    for key, kind in _AT_MOST.items():
        if key in reader and kind in types:
            given = [value for value, _ in demands(writer, key)]
            if not given or min(given) > reader[key]:
                yield _kind(key), key, f"{{writer}} allows more than {reader[key]}"
    if "array" in types and reader.get("uniqueItems") and not any(value for value, _ in demands(writer, "uniqueItems")):
        yield "UNIQUE_ITEMS_ADDED", "uniqueItems", "{writer} allows an item twice"
    if types & {"number", "integer"}:
        yield from _numbers(reader, writer, types)
    if "object" in types:
        yield from _required(reader, writer)


def _values(reader: dict[str, Any], values: list[Any] | None) -> Iterator[_FOUND]:
    for key in ("const", "enum"):
        if key not in reader:
            continue
        allowed = {write_json(each) for each in ([reader[key]] if key == "const" else reader[key])}
        if values is None:
            yield "ENUM_ARRAY_NARROWED", key, "{writer} allows other values"
        elif extra := sorted({write_json(each) for each in values} - allowed):
            yield "ENUM_ARRAY_NARROWED", key, f"{{writer}} allows {', '.join(extra):.200} as well"


def _numbers(reader: dict[str, Any], writer: list[Subschema], types: frozenset[str]) -> Iterator[_FOUND]:
    for key, strict, sign in (("minimum", "exclusiveMinimum", 1), ("maximum", "exclusiveMaximum", -1)):
        for own, is_strict in ((key, reader.get(strict) is True), (strict, True)):
            bound = reader.get(own)
            if isinstance(bound, bool) or not isinstance(bound, int | float):
                continue
            if not any(
                value * sign > bound * sign or (value == bound and (also_strict or not is_strict))
                for value, also_strict in _bounds(writer, key, strict)
            ):
                yield _kind(own), own, f"{{writer}} allows numbers beyond {bound}"
    step = reader.get("multipleOf")
    vacuous = step is None or (step == 1 and "number" not in types)
    if not vacuous and not any(value % step == 0 for value, _ in demands(writer, "multipleOf")):
        yield "MULTIPLE_OF_CHANGED", "multipleOf", f"{{writer}} allows what is no multiple of {step}"


def _bounds(writer: list[Subschema], key: str, strict: str) -> Iterator[tuple[float, bool]]:
    """Yield (bound, exclusive); in draft 4 `exclusiveMinimum` is true or false next to `minimum`."""
    for value, part in demands(writer, key):
        yield value, part.value.get(strict) is True
    for value, _ in demands(writer, strict):
        if not isinstance(value, bool):
            yield value, True


def _required(reader: dict[str, Any], writer: list[Subschema]) -> Iterator[_FOUND]:
    there = _required_names(writer)
    own = reader.get("properties", {})
    for name in reader.get("required", ()):
        schema = own.get(name)
        if name not in there and not (isinstance(schema, dict) and "default" in schema):
            yield "REQUIRED_ATTRIBUTE_ADDED", f"required/{name}", f"{{writer}} does not require property {name}"


def _required_names(writer: list[Subschema]) -> set[str]:
    return {name for value, _ in demands(writer, "required") if isinstance(value, list) for name in value}


def _lower(writer: list[Subschema], key: str) -> int:
    given = [value for value, _ in demands(writer, key)]
    if key == "minProperties":
        given.append(len(_required_names(writer)))
    return max(given, default=0)


def items_of(schema: Any) -> tuple[list[Any], Any, str]:
    """Return (schemas of the first items, schema of the others, keyword) for any draft."""
    if not isinstance(schema, dict):
        return [], schema, "items"
    if "prefixItems" in schema:
        return schema["prefixItems"], schema.get("items", True), "prefixItems"
    items = schema.get("items", True)
    if isinstance(items, list):
        return items, schema.get("additionalItems", True), "items"
    return [], items, "items"


def disjoint(one: list[Subschema], other: list[Subschema]) -> bool:
    """Return True if no value is valid for both: other types, values, or constants of a required property."""
    kinds = types_of(one), types_of(other)
    if not kinds[0] & kinds[1]:
        return True
    values = values_of(one), values_of(other)
    if values[0] is not None and values[1] is not None:
        return not {write_json(each) for each in values[0]} & {write_json(each) for each in values[1]}
    if kinds[0] == kinds[1] == {"object"}:
        for name in _required_names(one) & _required_names(other):
            inner = _property_values(one, name), _property_values(other, name)
            if inner[0] is not None and inner[1] is not None and not set(inner[0]) & set(inner[1]):
                return True
    return False


def _property_values(parts: list[Subschema], name: str) -> list[str] | None:
    found = [part.inner(value[name]) for value, part in demands(parts, "properties") if name in value]
    values = values_of(found)
    return None if values is None else [write_json(each) for each in values]


def _kinds(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset({"boolean"})
    if isinstance(value, int | float):
        return frozenset({"integer", "number"} if value % 1 == 0 else {"number"})
    known = ((type(None), "null"), (str, "string"), (list, "array"), (dict, "object"))
    return frozenset(name for kind, name in known if isinstance(value, kind))


def _kind(key: str) -> str:
    """Return the kind of a difference: `minLength` → MIN_LENGTH_NARROWED."""
    return "".join(f"_{each}" if each.isupper() else each.upper() for each in key) + "_NARROWED"


def array_differences(comparing: Comparing, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
    """Compare the first items one by one, then the others."""
    own, rest, key = items_of(reader.value)
    given = [(part, *items_of(part.value)[:2]) for part in writer]
    found: list[Difference] = []
    for number in range(max([len(own), *(len(first) for _, first, _ in given)]) + 1):
        item: list[Subschema] = []
        for part, first, others in given:
            item += conjuncts(part.inner(first[number] if number < len(first) else others))
        wanted = own[number] if number < len(own) else rest
        where = f"{path}/{key}/{number}" if number < len(own) else f"{path}/{key}"
        found += comparing.compare(reader.inner(wanted), item, where)
    return found


_TOGETHER = (
    *(("pattern",), ("propertyNames",), ("not",), ("if", "then", "else"), ("contains", "minContains", "maxContains")),
    *(("dependencies",), ("dependentSchemas",), ("dependentRequired",)),
)
"""Keywords that the writer's schema must have with equal values, those of a group in one place."""
_NOT_COMPARED = ("unevaluatedProperties", "unevaluatedItems", "$recursiveRef", "$dynamicRef")
"""Keywords whose meaning depends on their surroundings."""


def cannot_read(reader: Subschema, writer: Subschema) -> list[Difference]:
    """Return where the reader's schema may refuse documents of the writer's. Raises `InvalidSchema` if undecided."""
    return _Comparison().compare(reader, conjuncts(writer), "")


class _Comparison:
    def __init__(self) -> None:
        self._under_way: set[tuple[int, tuple[int, ...]]] = set()
        self._choices_of = Choices()
        self._same: dict[tuple[int, int], bool] = {}
        """Results for pairs of schemas, each compared once."""
        self._steps = 0

    def compare(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
        """`writer`: conjuncts. A pair whose comparison has begun is compatible, unless something else is not."""
        if reader.value is True or reader.value == {} or any(part.never for part in writer):
            return []
        if any(self._are_same(part, reader) for part in writer):
            return []
        pair = (id(reader.value), tuple(id(part.value) for part in writer))
        if pair in self._under_way:
            return []
        self._under_way.add(pair)
        return [each for part in conjuncts(reader) for each in self._part(part, writer, path)]

    def reads(self, reader: Subschema, writer: list[Subschema], path: str) -> bool:
        """Compare tentatively: assumptions are dropped if it fails."""
        before = set(self._under_way)
        if not self.compare(reader, writer, path):
            return True
        self._under_way = before
        return False

    def _has(self, part: Subschema, reader: Subschema, keys: list[str]) -> bool:
        """Return True if the writer's part has equal values of these keywords."""
        mine, theirs = reader.value, part.value
        if not isinstance(theirs, dict) or not all(key in mine and key in theirs for key in keys):
            return False
        return all(self._are_same(part.inner(theirs[key]), reader.inner(mine[key])) for key in keys)

    def _are_same(self, one: Subschema, other: Subschema) -> bool:
        pair = (id(one.value), id(other.value))
        if pair not in self._same:
            found = same_words(one, other)
            self._same |= dict.fromkeys(found, True) if found else {pair: False}
        return self._same[pair]

    def _part(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
        """Compare one conjunct of the reader's schema."""
        self._steps += 1
        if self._steps > STEPS_MAX:
            raise InvalidSchema(f"comparing the schemas takes more than {STEPS_MAX} steps")
        if not isinstance(reader.value, dict):
            return [] if reader.value else [_difference("TYPE_NARROWED", path, "{reader} allows nothing here")]
        own = [key for key in reader.value if key not in ("allOf", "$ref")]
        if any(self._has(part, reader, own) for part in writer):
            return []
        choices = self._choices_of.of(writer)
        if choices and not any(self._has(part, reader, [key]) for part in writer for key in ("anyOf", "oneOf")):
            return [each for choice in choices for each in self._part(reader, choice, path)]
        found = [_difference(kind, f"{path}/{key}", text) for kind, key, text in plain(reader.value, writer)]
        found += self._sums(reader, writer, path)
        types = types_of(writer)
        if "object" in types:
            found += object_differences(self, reader, writer, path)
        if "array" in types:
            found += array_differences(self, reader, writer, path)
        for group in _TOGETHER:
            there = [key for key in group if key in reader.value]
            if group[0] in reader.value and not any(self._has(part, reader, there) for part in writer):
                text = f"{{writer}} does not say the same of {group[0]}"
                found.append(_difference("KEYWORD_CHANGED", f"{path}/{group[0]}", text))
        for key in _NOT_COMPARED:
            if key in reader.value:
                found.append(_difference("KEYWORD_CHANGED", f"{path}/{key}", "around it the schemas differ"))
        return found

    def _sums(self, reader: Subschema, writer: list[Subschema], path: str) -> list[Difference]:
        for key in ("anyOf", "oneOf"):
            branches = [reader.inner(each) for each in reader.value.get(key, ())]
            if not branches or any(self._has(part, reader, [key]) for part in writer):
                continue
            reading = next((branch for branch in branches if self.reads(branch, writer, path)), None)
            if reading is None:
                text = "no branch of {reader} takes all that {writer} allows"
                return [_difference("SUM_TYPE_NARROWED", f"{path}/{key}", text)]
            others = [conjuncts(branch) for branch in branches if branch is not reading]
            if key == "oneOf" and not all(disjoint(other, writer) for other in others):
                text = "several branches of {reader} may take what {writer} allows, and only one may"
                return [_difference("SUM_TYPE_NARROWED", f"{path}/{key}", text)]
        return []


def _difference(kind: str, path: str, text: str) -> Difference:
    return Difference(kind, path or "/", text)


class JsonSchema:
    """A JSON `ParsedSchema`."""

    format = JSON

    def __init__(self, value: Any, place: Subschema) -> None:
        self.value = value
        self.canonical = write_json(value)
        self._place = place

    @property
    def normalized(self) -> str:
        return write_json(_sorted(self.value))

    def cannot_read(self, writer: JsonSchema) -> list[Difference]:
        return cannot_read(self._place, writer._place)


def parse_json_schema(text: str, references: Sequence[Referenced] = ()) -> JsonSchema:
    """Parse the text. Raises `InvalidSchema`."""
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import Draft7Validator, validator_for

    value = _read(text, "")
    known: Registry[Any] = _specifications()
    for each in references:
        schema = _read(each.text, f"reference {each.name}: ")
        known = known.with_resource(each.name, _specification(schema).create_resource(schema))
    try:
        validator_for(value, default=Draft7Validator).check_schema(value)
    except SchemaError as error:
        raise InvalidSchema(f"{error.json_path}: {error.message:.500}") from error
    except (RecursionError, NoSuchResource) as error:
        raise InvalidSchema(f"{type(error).__name__}: {error}") from error
    draft = _specification(value)
    resolver = known.resolver_with_root(draft.create_resource(value))
    place = Subschema(value, resolver, draft in (DRAFT3, DRAFT4, DRAFT6, DRAFT7))
    _check_references(place)
    return JsonSchema(value, place)


def _read(text: str, whose: str) -> Any:
    value = read_json(text)
    if not isinstance(value, dict | bool):
        raise InvalidSchema(f"{whose}a JSON Schema is an object, true or false")
    return value


def _specification(value: Any) -> Any:
    given = value.get("$schema") if isinstance(value, dict) else None
    return specification_with(given, default=DRAFT7) if isinstance(given, str) else DRAFT7


def _specifications() -> Registry[Any]:
    """Return the meta-schemas of all drafts; nothing is fetched."""
    from jsonschema_specifications import REGISTRY

    known: Registry[Any] = REGISTRY
    return known


def _check_references(place: Subschema) -> None:
    for found in _references(place):
        try:
            found.follow()
        except (Unresolvable, RecursionError) as error:
            raise InvalidSchema(f"$ref {found.value['$ref']!r:.200} cannot be resolved: {error}") from error


def _references(place: Subschema) -> Iterator[Subschema]:
    if isinstance(place.value, dict):
        if isinstance(place.value.get("$ref"), str):
            yield place
        for key, inner in place.value.items():
            if key not in _NOT_SCHEMAS:
                yield from _references(place.inner(inner))
    elif isinstance(place.value, list):
        for inner in place.value:
            yield from _references(place.inner(inner))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(each) for each in value] if isinstance(value, list) else value
