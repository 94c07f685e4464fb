"""Contract suite for an encoder together with its decoder."""

from collections.abc import Sequence
from typing import Any

import pytest

from ...core.client.serde import Decoder, Encoder


class SerdeContract:
    """Inherit; give `encoder`, `decoder`, and samples: some values, and things that have no encoding."""

    encoder: Encoder
    decoder: Decoder
    samples: Sequence[Any]
    refused: Sequence[Any]

    def test_what_goes_in_comes_out(self) -> None:
        for value in self.samples:
            data = self.encoder.encode("topic", value)
            assert type(data) is bytes
            assert self.decoder.decode("topic", data) == value

    def test_none_is_a_null_value_both_ways(self) -> None:
        assert self.encoder.encode("topic", None) is None
        assert self.decoder.decode("topic", None) is None

    def test_the_same_value_gives_the_same_bytes(self) -> None:
        for value in self.samples:
            assert self.encoder.encode("topic", value) == self.encoder.encode("topic", value)

    def test_what_has_no_encoding_is_refused_with_a_reason(self) -> None:
        for value in self.refused:
            with pytest.raises((TypeError, ValueError), match=r"."):
                self.encoder.encode("topic", value)
