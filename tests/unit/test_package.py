"""The face of the package."""

import barnabas


def test_all_public_names_are_importable() -> None:
    for name in barnabas.__all__:
        assert getattr(barnabas, name) is not None, name


def test_what_is_not_there_says_so() -> None:
    assert not hasattr(barnabas, "ConsumerBroker")
