"""JSON without a registry, read as objects of a class."""

import json
from typing import Any, Generic, TypeVar

from ...plugins.data_classes import KINDS, is_data_class, is_model
from ...ports.errors import ConfigError
from .typed import Typed, is_own_class, reason

T = TypeVar("T")


class JsonDecoder(Generic[T]):
    """Decoder of JSON values that makes an object of each: `Consumer(decoder=JsonDecoder(Order))`.

    The class is a dataclass, an attrs class or a pydantic model, or a type with such classes: `list[Order]`,
    `Order | None`. Times, decimals and others have the forms that `encoder="json"` writes. Fields that the class does
    not have are passed over, unless a pydantic model forbids them.
    """

    def __init__(self, cls: type[T]) -> None:
        """Raises `ConfigError` for a class of another kind, or if cattrs is not installed, which all but a pydantic
        model need."""
        if is_own_class(cls) and not is_data_class(cls):
            text = "make it one of them, or decode the values yourself: decoder=lambda data: ..."
            raise ConfigError(f"JsonDecoder: {cls.__name__} is {KINDS}; {text}")
        self._model: Any = cls if is_model(cls) else None
        self._typed = None if self._model is not None else Typed(cls, for_json=True, strict=True)

    def decode(self, topic: str, data: bytes | None) -> T | None:  # noqa: ARG002  # all topics have the same class
        """Decode the bytes `data`; None stays None. Raises `ValueError` that names the wrong fields."""
        if data is None:
            return None
        made: T
        if self._typed is not None:
            made = self._typed.made(json.loads(data))
            return made
        try:
            made = self._model.model_validate_json(data)
        except ValueError as error:
            raise ValueError(f"not a valid {self._model.__name__}: {reason(error, self._model)}") from error
        return made
