"""Cutting a stream into frames, against a plain model."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.adapters.transport_tcp.inbound import LARGE_BYTES, SHARED_BYTES, Inbound, ReceiveBuffers
from barnabas.ports.transport import TransportError

SIZES = st.one_of(
    st.integers(1, 40),
    st.integers(1, 5000),
    st.sampled_from(
        [LARGE_BYTES - 5, LARGE_BYTES, SHARED_BYTES - 4, SHARED_BYTES - 3, SHARED_BYTES, 400_000, 1_500_000]
    ),
)


class Stream:
    """A socket that has a fixed number of bytes ready each time."""

    def __init__(self, content: bytes) -> None:
        self._content = memoryview(content)
        self.ready = 0

    def recv_into(self, buffer: memoryview, /) -> int:
        assert len(buffer) > 0, "no room would look like the end"
        size = min(len(buffer), self.ready, len(self._content))
        buffer[:size] = self._content[:size]
        self._content = self._content[size:]
        return size

    def __len__(self) -> int:
        return len(self._content)


def _content(number: int, size: int) -> bytes:
    return bytes([number % 256]) * (size - 1) + b"!"


@given(
    st.lists(SIZES, min_size=1, max_size=12),
    st.lists(st.sampled_from([1, 3, 4, 5, 100, 5000, 66_000, 300_000, 2_000_000]), min_size=1, max_size=8),
    st.lists(st.integers(0, 4), min_size=1, max_size=8),
)
def test_frames_come_out_as_they_went_in(sizes: list[int], chunks: list[int], takes: list[int]) -> None:
    """`takes`: how many frames are wanted before the connection is held; two connections share the buffers."""
    contents = [_content(number, size) for number, size in enumerate(sizes)]
    stream = Stream(b"".join(struct.pack(">i", len(content)) + content for content in contents))
    disturbing = Stream(struct.pack(">i", 300) * 200_000)
    buffers = ReceiveBuffers()
    inbound, other = Inbound(buffers, 2_000_000), Inbound(buffers, 2_000_000)
    seen: list[bytes] = []
    turn = 0
    while len(stream):
        # Tiny chunks of a large stream would take for ever: at least a hundredth of what is left.
        stream.ready = max(chunks[turn % len(chunks)], len(stream) // 100)
        inbound.receive(stream)
        held = True
        while held:
            held = False
            wanted = takes[turn % len(takes)]
            turn += 1
            while (frame := inbound.next_frame()) is not None:
                seen.append(bytes(frame))
                frame[:] = b"\0" * len(frame)
                if wanted == 0:
                    held = True
                    break
                wanted -= 1
            inbound.save_unread()
            disturbing.ready = 70_000
            other.receive(disturbing)
            other.save_unread()
            other.clear()
    assert seen == contents
    assert inbound.pending_bytes == 0


def test_the_memory_of_a_frame_grows_with_what_has_come() -> None:
    taken: list[int] = []
    stream = Stream(struct.pack(">i", 50_000_000) + b"x" * 50_000_000)
    stream.ready = 100_000
    inbound = Inbound(ReceiveBuffers(), 100_000_000)
    came = 0
    while len(stream):
        came += inbound.receive(stream)
        frame = inbound.next_frame()
        if frame is not None:
            assert len(frame) == 50_000_000
        inbound.save_unread()
        size = inbound.long_frame_bytes
        if size and size not in taken:
            taken.append(size)
        assert not taken or taken[-1] <= 4 * came + 4
    assert taken[0] < 500_000
    assert len(taken) < 8


def test_receive_buffers_of_many_sizes_keep_the_largest() -> None:
    buffers = ReceiveBuffers()
    sizes = [300_000, 1_000_000, 400_000, 2_000_000, 500_000, 1_500_000, 3_000_000]
    for each in [buffers.allocate(size, size) for size in sizes]:
        buffers.give_back(each)
    assert [len(each) for each in buffers._spares] == [500_000, 1_000_000, 1_500_000, 2_000_000]
    assert len(buffers.allocate(600_000, 600_000)) == 1_000_000, "the smallest that is large enough"
    assert len(buffers.allocate(2_500_000, 9_000_000)) == 2_500_000
    assert [len(each) for each in buffers._spares] == [500_000, 1_500_000, 2_000_000]
    assert len(buffers.allocate(100_000, 1_600_000)) == 2_000_000, "one for the whole frame"
    assert len(buffers.allocate(100_000, 1_600_000)) == 500_000, "none is large enough for the whole frame"


@pytest.mark.parametrize(
    ("begin", "spoken"),
    [(b"HTTP/1.1", "speaks HTTP"), (b"GET / HT", "speaks HTTP"), (b"\x15\x03\x01\x00\x02", "speaks TLS")],
)
def test_another_protocol_is_named(begin: bytes, spoken: str) -> None:
    inbound, stream = Inbound(ReceiveBuffers(), 1000), Stream(begin)
    stream.ready = len(begin)
    inbound.receive(stream)
    with pytest.raises(TransportError, match=f"is not allowed .*the other side {spoken}"):
        inbound.next_frame()
