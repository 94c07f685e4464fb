"""The face of the package."""

import copy
import inspect
import pickle
import traceback

import pytest

import barnabas
from barnabas import ApiError, BarnabasError, ErrorCode

ERRORS = sorted(
    name
    for name in barnabas.__all__
    if inspect.isclass(kind := getattr(barnabas, name)) and issubclass(kind, Exception)
)


def example_of(name: str) -> BarnabasError:
    kind = getattr(barnabas, name)
    if kind is barnabas.CorruptRecord:
        return barnabas.CorruptRecord("orders", 0, 7, "bad CRC")
    made: BarnabasError = kind(ErrorCode.NOT_COORDINATOR, "of g") if issubclass(kind, ApiError) else kind("why")
    return made


def test_all_public_names_are_importable() -> None:
    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None, name


def test_unknown_package_attribute_is_an_attribute_error() -> None:
    assert not hasattr(barnabas, "ConsumerBroker")


@pytest.mark.parametrize("name", ERRORS)
def test_exported_error_has_its_public_name_in_tracebacks(name: str) -> None:
    shown = traceback.format_exception_only(example_of(name))[0]
    assert shown.startswith(f"barnabas.{name}: ")


@pytest.mark.parametrize("name", ERRORS)
def test_exported_error_can_be_pickled_and_copied(name: str) -> None:
    error = example_of(name)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # our own bytes
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))


def test_queue_full_is_pickled_without_the_handle_of_its_process() -> None:
    error = barnabas.QueueFull("full")
    error.taken = lambda: None
    assert pickle.loads(pickle.dumps(error)).taken is None  # our own bytes


def test_timeouts_are_those_of_python() -> None:
    assert issubclass(barnabas.ClientTimeout, TimeoutError)
    assert issubclass(barnabas.ConsumerTimeout, TimeoutError)
    assert str(barnabas.ClientTimeout("no answer within 3 s")) == "no answer within 3 s"


def test_decode_error_is_caught_as_encode_error_as_well() -> None:
    assert issubclass(barnabas.DecodeError, barnabas.EncodeError)
