"""The four codecs of Kafka, and how they are looked up."""

import pickle
import subprocess
import sys
import zlib
from struct import pack

import lz4.frame
import pytest
import snappy
import zstandard

from barnabas.core.message.codec import NO_CODECS, Codecs
from barnabas.plugins.builtin.codecs import GzipCodec, Lz4Codec, SnappyCodec, ZstdCodec, builtin_codecs
from barnabas.ports.error_codes import ErrorCode
from barnabas.ports.errors import ApiError, ConfigError
from barnabas.testing.contracts.codec import NO_BOUND, SAMPLES, CodecContract

TEXT = SAMPLES["text"]


class TestGzip(CodecContract):
    codec = GzipCodec()

    def test_zlib_reads_it_and_it_reads_zlib(self) -> None:
        assert zlib.decompress(self.codec.compress(TEXT), 31) == TEXT
        compressor = zlib.compressobj(wbits=31)
        assert self.codec.decompress(compressor.compress(TEXT) + compressor.flush(), NO_BOUND) == TEXT

    def test_several_members_are_one_content(self) -> None:
        assert self.codec.decompress(self.codec.compress(b"one ") + self.codec.compress(b"two"), 7) == b"one two"


class TestGzipOfZlib(CodecContract):
    codec = GzipCodec(level=6)


class TestSnappy(CodecContract):
    codec = SnappyCodec()

    def test_snappy_writes_xerial_format(self) -> None:
        compressed = self.codec.compress(TEXT[:40_000])
        assert compressed[:16] == bytes.fromhex("82534e41505059000000000100000001")
        size = int.from_bytes(compressed[16:20], "big")
        assert snappy.uncompress(compressed[20 : 20 + size]) == TEXT[: 32 * 1024]

    def test_snappy_reads_raw_block(self) -> None:
        assert self.codec.decompress(snappy.compress(TEXT), len(TEXT)) == TEXT

    def test_snappy_reads_xerial_chunks_of_any_size(self) -> None:
        chunk = snappy.compress(bytes(5_000_000))
        stream = self.codec.compress(b"") + pack(">i", len(chunk)) + chunk
        assert self.codec.decompress(stream, NO_BOUND) == bytes(5_000_000)

    def test_a_raw_block_that_claims_much_is_refused_before_memory_is_taken(self) -> None:
        with pytest.raises(ApiError) as caught:
            self.codec.decompress(b"\xff\xff\xff\xff\x0f" + b"abc", 1 << 20)
        assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE

    @pytest.mark.parametrize("size", [-1, 0, 1000, 2**31 - 1])
    def test_a_chunk_of_an_impossible_size_is_corrupt(self, size: int) -> None:
        with pytest.raises(ApiError) as caught:
            self.codec.decompress(self.codec.compress(b"") + pack(">i", size) + b"abc", NO_BOUND)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


class TestLz4(CodecContract):
    codec = Lz4Codec()

    def test_lz4_writes_independent_64_kb_blocks_without_content_size(self) -> None:
        info = lz4.frame.get_frame_info(self.codec.compress(TEXT))
        assert (info["block_size"], info["block_linked"], info["content_size"]) == (65536, False, 0)

    def test_lz4_reads_linked_blocks_with_content_size(self) -> None:
        assert self.codec.decompress(lz4.frame.compress(TEXT, store_size=True), len(TEXT)) == TEXT


class TestZstd(CodecContract):
    codec = ZstdCodec()

    def test_zstd_reads_frames_without_content_size(self) -> None:
        compressor = zstandard.ZstdCompressor().compressobj()
        assert self.codec.decompress(compressor.compress(TEXT) + compressor.flush(), len(TEXT)) == TEXT

    def test_zstd_reads_checksums_and_several_frames(self) -> None:
        frame = zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)
        assert self.codec.decompress(frame + frame, NO_BOUND) == TEXT + TEXT

    def test_zstd_reads_frames_of_level_22(self) -> None:
        compressor = zstandard.ZstdCompressor(level=22).compressobj()
        assert self.codec.decompress(compressor.compress(TEXT) + compressor.flush(), len(TEXT)) == TEXT

    def test_a_frame_that_claims_much_takes_no_memory(self) -> None:
        claims_a_terabyte = bytes.fromhex("28b52ffd e0 0000000000010000 010000")
        with pytest.raises(ApiError) as caught:
            self.codec.decompress(claims_a_terabyte, 1 << 20)
        assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


def test_the_four_are_found_by_number_and_by_name() -> None:
    codecs = builtin_codecs()
    assert codecs.names == ("gzip", "snappy", "lz4", "zstd")
    for number, name in enumerate(codecs.names, start=1):
        codec = codecs.by_name(name)
        assert codec is codecs.by_id(number)
        assert number in codecs


def test_no_compression_has_names_and_the_number_0() -> None:
    assert NO_CODECS.by_name("none") is None
    assert NO_CODECS.by_name("uncompressed") is None
    assert 0 in NO_CODECS
    assert 1 not in NO_CODECS


def test_an_unknown_codec_is_an_error_that_lists_the_known() -> None:
    with pytest.raises(ConfigError, match=r"'brotli'; known: none, gzip, snappy, lz4, zstd"):
        builtin_codecs().by_name("brotli")
    with pytest.raises(ApiError, match="5") as caught:
        builtin_codecs().by_id(5)
    assert caught.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


def test_two_codecs_cannot_share_a_number() -> None:
    with pytest.raises(ConfigError, match="gzip"):
        Codecs([GzipCodec(), GzipCodec()])


def test_a_codec_cannot_have_a_number_that_no_batch_can_name() -> None:
    class Eight(GzipCodec):
        id = 8

    with pytest.raises(ConfigError, match="8"):
        Codecs([Eight()])


_MEASURE_BOMBS = """
import pickle, resource, sys
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.ports.errors import ApiError
codecs, bombs = builtin_codecs(), pickle.load(sys.stdin.buffer)
for number in bombs:
    codecs.by_id(number).decompress(codecs.by_id(number).compress(b"warm"), 10)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for number, bomb in bombs.items():
    try:
        codecs.by_id(number).decompress(bomb, 8 << 20)
    except ApiError:
        continue
    raise SystemExit(f"codec {number} went beyond the bound")
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print((after - before) * (1 if sys.platform == "darwin" else 1024))
"""


def test_a_bomb_takes_no_memory_beyond_the_bound() -> None:
    """In a process of its own; the shell between keeps this process's peak out of the child's."""
    content = bytes(192 << 20)
    bombs = {codec.id: codec.compress(content) for codec in (GzipCodec(), Lz4Codec(), ZstdCodec())}
    bombs[SnappyCodec.id] = snappy.compress(content)
    done = subprocess.run(
        ["/bin/sh", "-c", '"$0" -c "$1"; exit $?', sys.executable, _MEASURE_BOMBS],
        input=pickle.dumps(bombs),
        capture_output=True,
        check=True,
    )
    assert int(done.stdout) < 32 << 20
