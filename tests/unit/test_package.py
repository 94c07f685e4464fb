"""The face of the package."""

import barnabas


def test_all_public_names_are_importable() -> None:
    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None, name


def test_unknown_package_attribute_is_an_attribute_error() -> None:
    assert not hasattr(barnabas, "ConsumerBroker")
