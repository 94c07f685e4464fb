"""The description of a configuration key, and the conversion of its value from and to text."""

import re
from typing import Any

from ...core.tree.service_url import redact_url
from ...ports.broker_api.configs import ConfigType
from ...ports.errors import ConfigError
from ...ports.values import Secret, frozen

Value = int | bool | float | str | tuple[str, ...] | Secret[str] | None

SHORT_MAX = 2**15 - 1
INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
_WHOLE = (ConfigType.SHORT, ConfigType.INT, ConfigType.LONG)

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,4})?")


@frozen(kw_only=True)
class ConfigKey:
    """One key. Bounds are inclusive; `choices` limit a text, or each item of a list; a default of None: may be unset.

    `dynamic`: can be changed while the broker runs. `ignored`: a key of Kafka without an effect; its value is any text.
    `form`: a regular expression for each item of a list; `form_text` says it in words.
    `scope`: "listener" if `listener.name.NAME.KEY` sets it for one listener; "mechanism" if
    `listener.name.NAME.MECHANISM.KEY` sets it for one SASL mechanism of a listener as well.
    """

    name: str
    type: ConfigType
    default: Value
    doc: str
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    dynamic: bool = False
    ignored: bool = False
    form: str = ""
    form_text: str = ""
    scope: str = ""
    ignore_case: bool = False
    """Whether a text may have capital letters; its value has none."""

    @property
    def attribute(self) -> str:
        """The name of the key in Python."""
        return self.name.replace(".", "_")

    @property
    def allowed(self) -> str:
        """The allowed values, for error texts."""
        if self.type is ConfigType.BOOLEAN:
            return " or ".join(self.choices or ("true", "false"))
        if self.type in _WHOLE:
            return f"a whole number from {self.low} to {self.high}"
        if self.type is ConfigType.DOUBLE:
            return f"a number from {self.low:g} to {self.high:g}"
        if self.form:
            return self.form_text
        if self.type is ConfigType.PASSWORD:
            return "a text"
        kind = "a list of texts" if self.type is ConfigType.LIST else "a text"
        if not self.choices:
            return kind
        return f"{'a list of' if self.type is ConfigType.LIST else 'one of'} {', '.join(self.choices)}"

    def parse(self, given: object) -> Any:
        """Parse a value from text, TOML or Python; the result has the type of the key.

        Raises `ConfigError`, which names the key, the value and what is allowed.
        """
        if given is None and self.default is None:
            return None
        if self.ignored and self.type is ConfigType.STRING:
            return self._parse_ignored(given)
        if self.type is ConfigType.BOOLEAN:
            return self._parse_boolean(given)
        if self.type in _WHOLE:
            return self._parse_number(given)
        if self.type is ConfigType.DOUBLE:
            return self._parse_double(given)
        if self.type is ConfigType.LIST:
            return self._parse_list(given)
        if self.type is ConfigType.PASSWORD:
            return self._parse_password(given)
        if not isinstance(given, str):
            raise self._refusal(given)
        return self._checked(given.strip(), given)

    def text(self, value: Value) -> str | None:
        """Return the value as Kafka writes it, or None for a password."""
        if value is None or isinstance(value, Secret):
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, float):
            return repr(value).upper().replace("E+", "E")  # as Java writes it
        if self.name == "coordination":  # the URL of a plug-in may have a password in it
            return redact_url(str(value))
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _parse_password(self, given: object) -> Secret[str]:
        if isinstance(given, Secret):
            return given
        if not isinstance(given, str):
            raise ConfigError(f"{self.name} has a value that is not {self.allowed}")  # which is not quoted
        return Secret(given.strip())

    def _parse_ignored(self, given: object) -> str:
        if isinstance(given, list | tuple):
            given = ",".join(map(str, given))
        if not isinstance(given, bool | int | float | str):
            raise self._refusal(given)
        return self._checked(str(given).lower() if isinstance(given, bool) else str(given).strip(), given)

    def _parse_boolean(self, given: object) -> bool:
        text = str(given).strip().lower() if isinstance(given, bool | str) else ""
        if text not in (self.choices or ("true", "false")):
            raise self._refusal(given)
        return text == "true"

    def _parse_number(self, given: object) -> int:
        number = given
        if isinstance(given, str) and _WHOLE_NUMBER.fullmatch(given.strip()):
            number = int(given)
        if not isinstance(number, int) or isinstance(number, bool):
            raise self._refusal(given)
        if not self._is_within(number):
            raise self._refusal(given)
        return number

    def _parse_double(self, given: object) -> float:
        number = given
        if isinstance(given, str) and _DECIMAL.fullmatch(given.strip()):
            number = float(given)
        if not isinstance(number, int | float) or isinstance(number, bool) or not self._is_within(number):
            raise self._refusal(given)
        return float(number)

    def _is_within(self, number: float) -> bool:
        """Return True if a number is within the bounds; NaN is not."""
        return (self.low is None or number >= self.low) and (self.high is None or number <= self.high)

    def _parse_list(self, given: object) -> tuple[str, ...]:
        if isinstance(given, str):
            items = [item.strip() for item in given.split(",")] if given.strip() else []
        elif isinstance(given, list | tuple | set | frozenset) and all(isinstance(item, str) for item in given):
            items = [item.strip() for item in (sorted(given) if isinstance(given, set | frozenset) else given)]
        else:
            raise self._refusal(given)
        if "" in items:
            raise self._refusal(given)
        return tuple(self._checked(item, given) for item in items)

    def _checked(self, item: str, given: object) -> str:
        if self.ignore_case:
            item = item.lower()
        if (self.choices and item not in self.choices) or (self.form and not re.fullmatch(self.form, item)):
            raise self._refusal(given)
        return item

    def _refusal(self, given: object) -> ConfigError:
        shown = repr(given)
        return ConfigError(f"{self.name}={shown if len(shown) < 200 else shown[:200] + '...'} is not {self.allowed}")


# How the fields of a table are declared.


def int_key(
    name: str,
    default: int | None,
    low: int,
    high: int = INT_MAX,
    *,
    doc: str,
    dynamic: bool = False,
    scope: str = "",
) -> Any:
    """Declare a key whose value is a 32-bit integer."""
    kind = ConfigType.INT
    return ConfigKey(name=name, type=kind, default=default, low=low, high=high, doc=doc, dynamic=dynamic, scope=scope)


def short_key(name: str, default: int, low: int, *, doc: str) -> Any:
    """Declare a key whose value is a 16-bit integer."""
    return ConfigKey(name=name, type=ConfigType.SHORT, default=default, low=low, high=SHORT_MAX, doc=doc)


def long_key(name: str, default: int | None, low: int, *, doc: str, dynamic: bool = False, scope: str = "") -> Any:
    """Declare a key whose value is a 64-bit integer."""
    kind = ConfigType.LONG
    return ConfigKey(
        name=name, type=kind, default=default, low=low, high=LONG_MAX, doc=doc, dynamic=dynamic, scope=scope
    )


def double_key(
    name: str, default: float, low: float, high: float, *, doc: str, dynamic: bool = False, scope: str = ""
) -> Any:
    """Declare a key whose value is a floating-point number."""
    kind = ConfigType.DOUBLE
    return ConfigKey(name=name, type=kind, default=default, low=low, high=high, doc=doc, dynamic=dynamic, scope=scope)


def flag_key(name: str, default: bool, *, doc: str, dynamic: bool = False, scope: str = "") -> Any:
    """Declare a key whose value is true or false."""
    kind = ConfigType.BOOLEAN
    return ConfigKey(name=name, type=kind, default=default, doc=doc, dynamic=dynamic, scope=scope)


def text_key(
    name: str,
    default: str | None,
    choices: tuple[str, ...] = (),
    *,
    doc: str,
    dynamic: bool = False,
    scope: str = "",
    ignore_case: bool = False,
) -> Any:
    """Declare a key whose value is a string."""
    return ConfigKey(
        name=name,
        type=ConfigType.STRING,
        default=default,
        choices=choices,
        doc=doc,
        dynamic=dynamic,
        scope=scope,
        ignore_case=ignore_case,
    )


def password_key(name: str, *, doc: str, dynamic: bool = False, scope: str = "") -> Any:
    """Declare a key whose value is a `Secret`: unset by default, and never shown."""
    return ConfigKey(name=name, type=ConfigType.PASSWORD, default=None, doc=doc, dynamic=dynamic, scope=scope)


def list_key(
    name: str,
    default: tuple[str, ...],
    choices: tuple[str, ...] = (),
    *,
    doc: str,
    dynamic: bool = False,
    scope: str = "",
) -> Any:
    """Declare a key whose value is a list of strings, or one string separated by commas."""
    return ConfigKey(
        name=name, type=ConfigType.LIST, default=default, choices=choices, doc=doc, dynamic=dynamic, scope=scope
    )
