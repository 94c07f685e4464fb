"""JSON from outside, bounded in depth, with nothing in it that JSON does not have."""

import json
from typing import Any, NoReturn

from .parsed import DEPTH_MAX, InvalidSchema


def read_json(text: str) -> Any:
    """The value. Raises `InvalidSchema` for what is no JSON or nests too deep."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except RecursionError:
        raise InvalidSchema(f"nested deeper than {DEPTH_MAX} levels") from None
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {error}") from error
    if depth_of(value) > DEPTH_MAX:
        raise InvalidSchema(f"nested deeper than {DEPTH_MAX} levels")
    return value


def write_json(value: Any) -> str:
    """As short as JSON goes, members in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def depth_of(value: Any) -> int:
    """How deep objects and arrays nest; 0 for a plain value."""
    level, depth = [value], -1
    while level:
        depth += 1
        level = (
            [
                inner
                for each in level
                if isinstance(each, dict | list)
                for inner in (each.values() if isinstance(each, dict) else each)
            ]
            if depth <= DEPTH_MAX
            else []
        )
    return depth


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a value of JSON")
