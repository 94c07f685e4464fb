"""Generated messages, the golden batch of facts B1, and ways to damage a batch."""

from hypothesis import strategies as st

from barnabas import Message
from barnabas.core.message.batch_header import write_crc

NOW_MS = 1_700_000_000_123

GOLDEN = bytes.fromhex(
    "0000000000000000 00000049 00000000 02 f069dece 0000 00000001 00000174876e8000 00000174876e8005"
    "ffffffffffffffff ffff ffffffff 00000002"
    "20 00 00 00 02 6b 0a 68656c6c6f 02 02 68 02 78"
    "0c 00 0a 02 01 01 00"
)
GOLDEN_MESSAGES = [
    Message(b"hello", key=b"k", headers=(("h", b"x"),), timestamp_ms=1_600_000_000_000),
    Message(None, timestamp_ms=1_600_000_000_005),
]

header_lists = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3).map(tuple)
timestamps = st.none() | st.integers(-1, 2**41) | st.integers(-(2**61), 2**61)
any_messages = st.tuples(
    st.none() | st.binary(max_size=200), st.none() | st.binary(max_size=40), header_lists, timestamps
).map(lambda fields: Message(*fields))
# What the quick paths are for, with now and then a message that is not for them.
plain_messages = st.tuples(st.integers(50, 70), st.integers(1000, 1003)).map(
    lambda fields: Message(b"v" * fields[0], timestamp_ms=fields[1])
)
message_lists = st.one_of(
    st.lists(any_messages, min_size=1, max_size=20),
    st.lists(plain_messages, min_size=1, max_size=80),
    st.lists(st.integers(0, 300).map(lambda size: Message(b"w" * size)), min_size=1, max_size=80),
    st.tuples(st.lists(plain_messages, max_size=70), st.lists(any_messages, min_size=1, max_size=3)).map(
        lambda two: two[0] + two[1]
    ),
)


def sent(message: Message) -> Message:
    """Return the message as it was before its append to a log."""
    return Message(message.value, message.key, message.headers, message.timestamp_ms)


def stamped(messages: list[Message]) -> list[Message]:
    """Return the messages with the time that `encode_batch` gives them."""
    return [each._replace(timestamp_ms=NOW_MS) if each.timestamp_ms is None else each for each in messages]


def with_right_crc(batch: bytes | bytearray) -> bytearray:
    """Return the batch, changed bytes and all, with a valid CRC."""
    copy = bytearray(batch)
    write_crc(copy, 0, len(copy))
    return copy
