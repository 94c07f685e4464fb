"""Contract suite for compression codecs."""

import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ...core.message.codec import Codec
from ...ports.error_codes import ErrorCode
from ...ports.errors import ApiError

NO_BOUND = 1 << 28
BOMB_BYTES = 64 << 20
# Bytes that no codec makes smaller, the same in every run.
NOISE = b"".join(zlib.crc32(bytes((n & 0xFF, n >> 8))).to_bytes(4, "big") for n in range(30_000))
# The suite is inherited, so that Hypothesis sees one test run by several classes.
inherited = settings(suppress_health_check=[HealthCheck.differing_executors, HealthCheck.too_slow])
SAMPLES = {
    "nothing": b"",
    "one byte": b"x",
    "text": b'{"level": "INFO", "message": "started"}\n' * 5_000,
    "noise": NOISE,
    "zeros": bytes(3_000_000),
    "more than one chunk": NOISE * 11 + bytes(100_000),
}


class CodecContract:
    """Inherit, and give a class attribute `codec`."""

    codec: Codec

    @pytest.mark.parametrize("name", SAMPLES)
    def test_what_goes_in_comes_out(self, name: str) -> None:
        data = SAMPLES[name]
        assert self.codec.decompress(self.codec.compress(data), len(data)) == data

    @inherited
    @given(st.lists(st.binary(max_size=50), max_size=20).map(lambda pieces: b"".join(pieces * 3)))
    def test_any_bytes_go_in_and_come_out(self, data: bytes) -> None:
        assert self.codec.decompress(self.codec.compress(data), len(data)) == data

    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_codec_accepts_every_buffer_and_returns_bytes(self, kind: type[bytes]) -> None:
        data = SAMPLES["text"]
        compressed = self.codec.compress(kind(data))
        assert type(compressed) is bytes
        content = self.codec.decompress(kind(compressed), len(data))
        assert type(content) is bytes
        assert content == data

    def test_repeated_text_becomes_smaller(self) -> None:
        assert len(self.codec.compress(SAMPLES["text"])) < len(SAMPLES["text"]) / 8

    @pytest.mark.parametrize("name", ["one byte", "text", "noise", "zeros"])
    def test_one_byte_more_than_the_bound_is_too_large(self, name: str) -> None:
        data = SAMPLES[name]
        with pytest.raises(ApiError) as caught:
            self.codec.decompress(self.codec.compress(data), len(data) - 1)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    def test_a_bomb_ends_at_the_bound(self) -> None:
        bomb = self.codec.compress(bytes(BOMB_BYTES))
        with pytest.raises(ApiError) as caught:
            self.codec.decompress(bomb, 1 << 20)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("name", ["one byte", "text", "noise"])
    def test_cut_data_is_corrupt(self, name: str) -> None:
        data = SAMPLES[name]
        compressed = self.codec.compress(data)
        for size in {0, 1, 5, 9, 15, len(compressed) // 2, len(compressed) - 5, len(compressed) - 1}:
            if 0 <= size < len(compressed):
                with pytest.raises(ApiError) as caught:
                    self.codec.decompress(compressed[:size], NO_BOUND)
                assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

    @inherited
    @given(st.binary(max_size=100))
    def test_arbitrary_bytes_are_corrupt_or_something(self, data: bytes) -> None:
        self._decompress_or_refuse(data)

    @inherited
    @given(st.data())
    def test_damaged_data_is_corrupt_or_something_else(self, draw: st.DataObject) -> None:
        damaged = bytearray(self.codec.compress(SAMPLES["text"][:400]))
        for _ in range(draw.draw(st.integers(1, 4))):
            damaged[draw.draw(st.integers(0, len(damaged) - 1))] = draw.draw(st.integers(0, 255))
        self._decompress_or_refuse(bytes(damaged))

    def _decompress_or_refuse(self, data: bytes) -> None:
        bound = 100_000
        try:
            assert len(self.codec.decompress(data, bound)) <= bound
        except ApiError as error:
            assert error.code in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.MESSAGE_TOO_LARGE)
