"""Strict JSON from untrusted sources, bounded in depth."""

import json
from typing import Any, NoReturn

from .parsed import DEPTH_MAX, InvalidSchema


def read_json(text: str) -> Any:
    """Parse JSON. Raises `InvalidSchema` for invalid or too deeply nested JSON."""
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
    """Return compact JSON with members in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def depth_of(value: Any) -> int:
    """Return the nesting depth of objects and arrays; 0 for a plain value."""
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
    raise ValueError(f"{name} is not a JSON value")
