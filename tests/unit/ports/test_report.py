"""Words of lines for the log and for the terminal."""

import pytest

from barnabas.ports.report import counted


@pytest.mark.parametrize(
    ("count", "words", "said"),
    [
        (0, ("message",), "0 messages"),
        (1, ("message",), "1 message"),
        (2, ("message",), "2 messages"),
        (1, ("batch", "batches"), "1 batch"),
        (3, ("batch", "batches"), "3 batches"),
        (1, ("message was", "messages were"), "1 message was"),
    ],
)
def test_one_is_not_several(count: int, words: tuple[str, ...], said: str) -> None:
    assert counted(count, *words) == said
