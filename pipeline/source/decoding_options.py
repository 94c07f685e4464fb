"""The options that say how key and value are encoded: `value.format`, `schema.registry.url`, `mode` and more."""

from collections.abc import Mapping
from pathlib import Path

from attrs import frozen

from ...app.extras import require
from ...ports.errors import ConfigError
from ...schemas.access import ACCESS_OPTIONS, RegistryAccess, access_of, is_access_setting

_COLUMNS = ("key", "value")
_REGISTRY = "schema.registry.url"
_FORMATS = {"avro": ("fastavro",), "json": (), "protobuf": ("google.protobuf",)}
_SETTINGS = ("format", "schema", "schema.file", "schema.id", "subject", "columns")
_WRITTEN = ("format", "schema", "schema.file", "subject")
_MODE = "mode"
_FLAGS = ("auto.register.schemas", "use.latest.version")
PERMISSIVE, FAILFAST = "PERMISSIVE", "FAILFAST"
DECODING_OPTIONS = (
    _REGISTRY,
    *ACCESS_OPTIONS,
    _MODE,
    *(f"{column}.{setting}" for column in _COLUMNS for setting in _SETTINGS),
)
ENCODING_OPTIONS = (
    _REGISTRY,
    *ACCESS_OPTIONS,
    *_FLAGS,
    *(f"{column}.{setting}" for column in _COLUMNS for setting in _WRITTEN),
)


@frozen(kw_only=True)
class ColumnFormat:
    """The format of one column. With a schema, or the id of one, it needs no registry but for its writers' schemas.

    schema: of avro its JSON; of json what SQL has between the brackets of CREATE TABLE, Spark's own JSON of a type, or
            a JSON Schema.
    """

    column: str
    format: str
    registry: RegistryAccess | str = ""
    subject: str = ""
    schema: str = ""
    schema_id: int | None = None
    columns: str = ""
    """The type of the column, in Spark's JSON: it may have fields that the schema lacks, they are null."""


@frozen(kw_only=True)
class ColumnEncoding:
    """The format in which columns that are no bytes are written; found by `encoding_of`."""

    columns: tuple[ColumnFormat, ...]
    auto_register: bool = True
    use_latest: bool = False


@frozen(kw_only=True)
class ColumnDecoding:
    """The result of `decoding_of`. Permissive: rows that do not decode are kept, with the reason."""

    columns: tuple[ColumnFormat, ...]
    permissive: bool = False


def decoding_of(given: Mapping[str, str]) -> ColumnDecoding | None:
    """Return the options of decoding, by the names of `DECODING_OPTIONS`. Raises `ConfigError`."""
    mode = given.get(_MODE, FAILFAST).strip().upper()
    if mode not in (PERMISSIVE, FAILFAST):
        why = "; nothing is dropped in silence here: filter on value_error" if mode == "DROPMALFORMED" else ""
        raise ConfigError(f"mode must be {PERMISSIVE} or {FAILFAST}, not {given[_MODE]!r}{why}")
    columns = [found for column in _COLUMNS if (found := _column(given, column)) is not None]
    if columns:
        return ColumnDecoding(columns=tuple(columns), permissive=mode == PERMISSIVE)
    for name in (_REGISTRY, _MODE):
        if name in given:
            raise ConfigError(f"{name} has no meaning without value.format or key.format")
    return None


def encoding_of(given: Mapping[str, str]) -> ColumnEncoding | None:
    """Return the options of a write, by the names of `ENCODING_OPTIONS`. Raises `ConfigError`."""
    columns = [found for column in _COLUMNS if (found := _column(given, column)) is not None]
    flags = {name: given[name].strip().lower() for name in _FLAGS if name in given}
    for name, flag in flags.items():
        if flag not in ("true", "false"):
            raise ConfigError(f"{name} must be 'true' or 'false', not {given[name]!r}")
    if not columns:
        for name in (_REGISTRY, *_FLAGS):
            if name in given:
                raise ConfigError(f"{name} has no meaning without value.format or key.format")
        return None
    register, latest = (flags.get(name) == "true" if name in flags else None for name in _FLAGS)
    return ColumnEncoding(columns=tuple(columns), auto_register=register is not False, use_latest=latest is True)


def _column(given: Mapping[str, str], column: str) -> ColumnFormat | None:
    said = {setting: given[f"{column}.{setting}"].strip() for setting in _SETTINGS if f"{column}.{setting}" in given}
    name = said.get("format", "").lower()
    if not name or name == "bytes":
        if said.keys() - {"format"}:
            raise ConfigError(f"{column}.{min(said.keys() - {'format'})} has no meaning without {column}.format")
        return None
    if name not in _FORMATS:
        raise ConfigError(f"{column}.format must be one of {', '.join(_FORMATS)}, bytes, not {said['format']!r}")
    require(f"{column}.format={name}", _FORMATS[name], "schemas")
    chosen = [setting for setting in ("schema", "schema.file", "schema.id") if setting in said]
    if len(chosen) > 1:
        raise ConfigError(f"give one of {' and '.join(f'{column}.{setting}' for setting in chosen)}")
    registry = access_of({option: value for option, value in given.items() if is_access_setting(option)})
    if not registry and (name != "json" or "schema.id" in said or "subject" in said):
        raise ConfigError(f"{column}.format={name} needs {_REGISTRY}, as in http://127.0.0.1:8081")
    number = said.get("schema.id")
    if number is not None and not number.isdigit():
        raise ConfigError(f"{column}.schema.id must be a whole number, not {number!r}")
    return ColumnFormat(
        column=column,
        format=name,
        registry=registry,
        subject=said.get("subject", ""),
        schema=_read(said["schema.file"], column) if "schema.file" in said else said.get("schema", ""),
        schema_id=None if number is None else int(number),
        columns=said.get("columns", ""),
    )


def _read(path: str, column: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{column}.schema.file cannot be read: {error}") from error
