"""The least that a client of RabbitMQ (AMQP 0-9-1) and of ActiveMQ (STOMP 1.2) must do, over bare sockets.

Requests are made before, and sent one by one: as little as our own bare client does. Messages are persistent, queues
durable. Consumers get at most 1,000 messages ahead; over AMQP they acknowledge every 500 those before, over STOMP the
server counts as consumed what it has sent, as in the paper.
"""

import socket
import struct
from collections.abc import Iterator
from importlib import import_module
from typing import Any

QUEUE = "bench"
PREFETCH = 1000
ACK_EVERY = 500
CONFIRM_WINDOW = 1000
"""The limit of publishes that wait for their confirmation at a time."""

_FRAME_END = b"\xce"
_METHOD, _HEADER, _BODY = 1, 2, 3
_PERSISTENT = struct.pack(">HB", 0x1000, 2)
_NO_TABLE = bytes(4)


def _short_text(text: str) -> bytes:
    return bytes((len(text),)) + text.encode()


def _frame(kind: int, payload: bytes, channel: int = 1) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + _FRAME_END


def _method(class_id: int, method_id: int, arguments: bytes = b"", channel: int = 1) -> bytes:
    return _frame(_METHOD, struct.pack(">HH", class_id, method_id) + arguments, channel)


def amqp_publish(body: bytes) -> bytes:
    """Return the three frames of one persistent message."""
    publish = _method(60, 40, bytes(2) + _short_text("") + _short_text(QUEUE) + b"\x00")
    header = struct.pack(">HHQ", 60, 0, len(body)) + _PERSISTENT
    return publish + _frame(_HEADER, header) + _frame(_BODY, body)


class AmqpClient:
    """One connection with one channel, and a durable queue that is empty at first."""

    def __init__(self, port: int, *, confirms: bool = False) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(60)
        self._frames = self._read()
        self._confirms = confirms
        self._published = self._confirmed = 0
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._await(10, 10)
        login = _short_text("PLAIN") + struct.pack(">I", 12) + b"\0guest\0guest" + _short_text("en_US")
        self._socket.sendall(_method(10, 11, _NO_TABLE + login, 0))
        self._await(10, 30)
        self._socket.sendall(_method(10, 31, struct.pack(">HIH", 8, 131_072, 0), 0))
        self._socket.sendall(_method(10, 40, _short_text("/") + b"\x00\x00", 0))
        self._await(10, 41)
        self._ask(_method(20, 10, _short_text("")), 20, 11)
        self.waiting(passive=False)
        if confirms:
            self._ask(_method(85, 10, b"\x00"), 85, 11)

    def close(self) -> None:
        self._socket.close()

    def waiting(self, *, passive: bool = True) -> int:
        """Return messages in the queue. Answered when the queue has what was sent before."""
        declare = bytes(2) + _short_text(QUEUE) + (b"\x03" if passive else b"\x02") + _NO_TABLE
        answer = self._ask(_method(50, 10, declare), 50, 11)
        return int(struct.unpack_from(">I", answer, 5 + len(QUEUE))[0])

    def publish(self, body: bytes, count: int) -> None:
        """One `sendall` a message; with confirms returns when all are confirmed."""
        frames, send = amqp_publish(body), self._socket.sendall
        for _ in range(count):
            send(frames)
            self._published += 1
            if self._confirms and self._published - self._confirmed >= CONFIRM_WINDOW:
                self._await_confirms(self._published - CONFIRM_WINDOW // 2)
        if self._confirms:
            self._await_confirms(self._published)
        else:
            self.waiting()

    def consume(self, count: int) -> None:
        """Take `count` messages out of the queue."""
        self._ask(_method(60, 10, struct.pack(">IHB", 0, PREFETCH, 0)), 60, 11)
        consume = bytes(2) + _short_text(QUEUE) + _short_text("c") + b"\x00" + _NO_TABLE
        self._ask(_method(60, 20, consume), 60, 21)
        taken = 0
        while taken < count:
            kind, payload = next(self._frames)
            if kind != _METHOD or payload[:4] != b"\x00\x3c\x00\x3c":
                continue
            taken += 1
            if taken % ACK_EVERY == 0 or taken == count:
                next(self._frames), next(self._frames)  # header and body of the last one
                self._socket.sendall(_method(60, 80, payload[6:14] + b"\x01"))  # after the consumer's tag, "c"
        self._ask(_method(60, 30, _short_text("c") + b"\x00"), 60, 31)

    def _ask(self, frames: bytes, class_id: int, method_id: int) -> bytes:
        self._socket.sendall(frames)
        return self._await(class_id, method_id)

    def _await(self, class_id: int, method_id: int) -> bytes:
        """Return the payload of the expected method; pass over late deliveries before it."""
        wanted = struct.pack(">HH", class_id, method_id)
        while True:
            kind, payload = next(self._frames)
            if kind != _METHOD:
                continue
            if payload[:4] == wanted:
                return payload
            if payload[:4] in (b"\x00\x14\x00\x28", b"\x00\x0a\x00\x32"):
                raise RuntimeError(f"the server closed: {payload!r}")

    def _await_confirms(self, tag: int) -> None:
        while self._confirmed < tag:
            self._confirmed = int.from_bytes(self._await(60, 80)[4:12], "big")

    def _read(self) -> Iterator[tuple[int, bytes]]:
        buffer, at = b"", 0
        head = struct.Struct(">BHI")
        while True:
            while len(buffer) - at >= 8:
                kind, _, size = head.unpack_from(buffer, at)
                end = at + 8 + size
                if end > len(buffer):
                    break
                yield kind, buffer[at + 7 : end - 1]
                at = end
            got = self._socket.recv(262_144)
            if not got:
                raise ConnectionError("the server closed the connection")
            buffer, at = buffer[at:] + got, 0


class StompClient:
    """One connection to a queue."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(60)
        self._buffer = b""
        self._receipts = 0
        self._socket.sendall(b"CONNECT\naccept-version:1.2\nhost:localhost\nheart-beat:0,0\n\n\x00")
        while not self._next().startswith(b"CONNECTED"):
            pass

    def close(self) -> None:
        self._socket.close()

    def publish(self, body: bytes, count: int) -> None:
        """One `sendall` a message; the last one asks for a receipt, which says that all have come."""
        head = f"SEND\ndestination:/queue/{QUEUE}\npersistent:true\ncontent-length:{len(body)}\n"
        frame, send = head.encode() + b"\n" + body + b"\x00", self._socket.sendall
        for _ in range(count - 1):
            send(frame)
        self._receipts += 1
        send(head.encode() + b"receipt:%d\n\n" % self._receipts + body + b"\x00")
        self._await_receipt()

    def consume(self, count: int) -> None:
        """Take `count` messages out of the queue."""
        subscribe = f"SUBSCRIBE\nid:0\ndestination:/queue/{QUEUE}\nack:auto\nactivemq.prefetchSize:{PREFETCH}\n\n"
        self._socket.sendall(subscribe.encode() + b"\x00")
        taken = 0
        while taken < count:
            taken += self._next().startswith(b"MESSAGE")
        self._receipts += 1
        self._socket.sendall(b"UNSUBSCRIBE\nid:0\nreceipt:%d\n\n\x00" % self._receipts)
        self._await_receipt()

    def _await_receipt(self) -> None:
        while not (frame := self._next()).startswith(b"RECEIPT"):
            if frame.startswith(b"ERROR"):
                raise RuntimeError(f"the server answers {frame[:300]!r}")

    def _next(self) -> bytes:
        """Return the next frame. Bodies hold no zero byte here, so that one ends it."""
        while True:
            frame, end, rest = self._buffer.partition(b"\x00")
            if end:
                self._buffer = rest.lstrip(b"\n")
                return frame
            got = self._socket.recv(65_536)
            if not got:
                raise ConnectionError("the server closed the connection")
            self._buffer += got


class PikaClient:
    """A client as users of pika write it. Raises `ImportError` where pika is missing."""

    def __init__(self, port: int, *, confirms: bool = False, persistent: bool = True) -> None:
        pika: Any = import_module("pika")
        self._properties = pika.BasicProperties(delivery_mode=2 if persistent else 1)
        self._connection: Any = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))
        self._channel: Any = self._connection.channel()
        self._channel.queue_declare(QUEUE, durable=True)
        if confirms:
            self._channel.confirm_delivery()

    def close(self) -> None:
        self._connection.close()

    def publish(self, body: bytes, count: int) -> None:
        """With confirms each publish waits for its confirmation: pika's blocking channel knows no other way."""
        publish, properties = self._channel.basic_publish, self._properties
        for _ in range(count):
            publish("", QUEUE, body, properties)
        self._channel.queue_declare(QUEUE, durable=True, passive=True)

    def consume(self, count: int) -> None:
        self._channel.basic_qos(prefetch_count=PREFETCH)
        for taken, (method, _, _) in enumerate(self._channel.consume(QUEUE), 1):
            if taken % ACK_EVERY == 0 or taken == count:
                self._channel.basic_ack(method.delivery_tag, multiple=True)
            if taken == count:
                break
        self._channel.cancel()
