"""A question to librdkafka's main thread, past confluent-kafka: its objects let one thread in at a time."""

import ctypes
import sys
from functools import cache
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer

_POINTER_AT = object.__basicsize__
"""`Handle` of confluent_kafka.h: the pointer to the client comes first, after the head of each Python object."""


@cache
def _library() -> Any:
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split(maxsplit=5)[-1]
        if "/librdkafka" in path:
            library = ctypes.CDLL(path)
            library.rd_kafka_assignment.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p)]
            library.rd_kafka_topic_partition_list_destroy.argtypes = [ctypes.c_void_p]
            library.rd_kafka_name.argtypes = [ctypes.c_void_p]
            library.rd_kafka_name.restype = ctypes.c_char_p
            return library
    raise RuntimeError(f"{sys.executable} has not loaded librdkafka")


def main_thread_answers(consumer: Consumer | None) -> str:
    """Ask for the assignment, which needs no broker; wait without a limit, and return what was answered."""
    client = ctypes.c_void_p.from_address(id(consumer) + _POINTER_AT) if consumer is not None else None
    if client is None or not client.value:
        return "it is not open"
    found = ctypes.c_void_p()
    error = _library().rd_kafka_assignment(client, ctypes.byref(found))  # without the GIL
    if found.value:
        _library().rd_kafka_topic_partition_list_destroy(found)
    return f"{_library().rd_kafka_name(client).decode()} answered with {error}"
