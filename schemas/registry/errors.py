"""Errors of the REST API, with the numbers of Confluent's registry."""

from __future__ import annotations

from ...ports.errors import BarnabasError


class RegistryError(BarnabasError):
    """An error response. The first three digits of the code are the HTTP status."""

    def __init__(self, code: int, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = int(str(code)[:3]) if status is None else status


def subject_not_found(subject: str) -> RegistryError:
    return RegistryError(40401, f"Subject '{subject}' not found.")


def version_not_found(number: int) -> RegistryError:
    return RegistryError(40402, f"Version {number} not found.")


def schema_not_found(number: int | str | None = None) -> RegistryError:
    return RegistryError(40403, "Schema not found" if number is None else f"Schema {number} not found")


def invalid_schema(why: object) -> RegistryError:
    return RegistryError(42201, f"Invalid schema: {why}")


def invalid_version(given: str) -> RegistryError:
    allowed = 'Allowed values are between [1, 2^31-1] and the string "latest"'
    return RegistryError(42202, f"The specified version '{given:.100}' is not a valid version id. {allowed}")


def not_permitted(why: str) -> RegistryError:
    return RegistryError(42205, why)


_DIFFERENCES_SHOWN, _DIFFERENCE_CHARS = 5, 300


def incompatible(subject: str, why: list[str]) -> RegistryError:
    """Return the refusal of a schema, short enough for one line of a client's log: some of the differences, and the
    version of the earlier schema without its text, which `GET /subjects/SUBJECT/versions/N` has.
    """
    text = f'Schema being registered is incompatible with an earlier schema for subject "{subject}"'
    found = [each for each in why if each.startswith("{errorType:")]
    shown = [each if len(each) <= _DIFFERENCE_CHARS else f"{each[:_DIFFERENCE_CHARS]}...'}}" for each in found]
    if len(found) > _DIFFERENCES_SHOWN:
        shown[_DIFFERENCES_SHOWN:] = [f"{{more: '{len(found) - _DIFFERENCES_SHOWN} more differences'}}"]
    rest = [each for each in why if not each.startswith(("{errorType:", "{oldSchema:"))]
    return RegistryError(409, f"{text}, details: [{', '.join([*shown, *rest])}]")


def unavailable(why: object) -> RegistryError:
    return RegistryError(50003, f"The brokers cannot be reached, and nothing was changed: {why}", 503)


def timed_out(why: object) -> RegistryError:
    return RegistryError(50002, f"The operation timed out, and may still take effect: {why}", 500)
