"""One input, looked at: what came out, and what it took."""

import time
import tracemalloc

from fuzz.targets import Target

SECONDS_MAX = 1.0
MEMORY_MAX = 64 << 20
"""Compressed bytes may become a MiB, and Python objects take more than what they were read from."""


class Finding(AssertionError):
    """A decoder did what it may not."""


def attempt(target: Target, data: bytes) -> None:
    """Decode. Raises `Finding` for an error that is not declared, and for too much time."""
    began = time.process_time()
    try:
        target.decode(data)
    except target.errors:
        pass
    except Exception as error:
        raise Finding(f"{type(error).__name__}: {str(error)[:200]}") from error
    took = time.process_time() - began
    if took > SECONDS_MAX:
        raise Finding(f"it took {took:.1f} s for {len(data)} bytes")


def attempt_traced(target: Target, data: bytes) -> None:
    """Run an attempt; raise `Finding` for too much memory, too."""
    tracemalloc.start()
    try:
        attempt(target, data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if peak > MEMORY_MAX:
        raise Finding(f"it took {peak >> 20} MiB for {len(data)} bytes")
