"""Cost per produce and per fetch on a small log and on one a thousand times larger (10 MB and 10 GB of segments).

The old batches are headers in front of holes: the broker never opens them, and the files take little room.
"""

import struct
import tempfile
import time
from pathlib import Path
from statistics import median

from harness import BareClient, Result, broker, fetch_frame, produce_frame, records_of

from barnabas import Message
from barnabas.core.message.batch_writer import encode_batch

TOPIC = "bench"
BATCH_BYTES = 64 * 1024
SEGMENT_BYTES = 1024**3
ROUNDS = 3_000
OLD_PLACES = 100


def _fill(folder: Path, total_bytes: int) -> int:
    """Write segments of `total_bytes` in all; returns the log end offset."""
    folder.mkdir(parents=True, exist_ok=True)
    segment_bytes = min(SEGMENT_BYTES, total_bytes // 4)
    per_segment = segment_bytes // BATCH_BYTES
    offset = 0
    for _ in range(total_bytes // segment_bytes):
        name = f"{offset:020d}"
        index, times = bytearray(), bytearray()
        with (folder / f"{name}.log").open("wb") as log:
            for number in range(per_segment):
                log.seek(number * BATCH_BYTES)
                timestamp = 1_700_000_000_000 + offset + number
                log.write(
                    struct.pack(
                        ">qiibIhiqqqhii",
                        offset + number,
                        BATCH_BYTES - 12,
                        0,
                        2,
                        0,
                        0,
                        0,
                        timestamp,
                        timestamp,
                        -1,
                        -1,
                        -1,
                        1,
                    )
                )
                index += struct.pack(">ii", number, number * BATCH_BYTES)
                times += struct.pack(">qi", timestamp, number)
            log.truncate(per_segment * BATCH_BYTES)
        (folder / f"{name}.index").write_bytes(index[8:])
        (folder / f"{name}.timeindex").write_bytes(times[12:])
        offset += per_segment
    return offset


def _costs(total_bytes: int) -> tuple[float, float, float]:
    """Median seconds of a produce, of a fetch at the end, and of a fetch of an old offset."""
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-", ignore_cleanup_errors=True) as scratch:
        data = Path(scratch)
        with broker(data) as running:
            from barnabas import Admin

            with Admin(running.bootstrap) as admin:
                admin.create_topic(TOPIC, partitions=1, configs={"retention.ms": "-1"})
        for old in (data / f"{TOPIC}-0").iterdir():
            if old.suffix in (".log", ".index", ".timeindex"):
                old.unlink()
        end = _fill(data / f"{TOPIC}-0", total_bytes)
        with (data / "recovery-point-offset-checkpoint").open("w") as checkpoint:
            checkpoint.write(f"0\n1\n{TOPIC} 0 {end}\n")
        (data / ".kafka_cleanshutdown").touch()
        with broker(data) as running:
            client = BareClient(running.host, running.port)
            batch = bytes(encode_batch([Message(value=bytes(200))], now_ms=1_700_000_000_000))
            # Spread over the whole log, and few enough to stay in the page cache: the disk is not what is measured.
            places = [end * part // OLD_PLACES for part in range(OLD_PLACES)]
            produce, tail, old_reads = [], [], []
            for number in range(ROUNDS):
                produce.append(_timed(client, produce_frame(TOPIC, 0, batch)))
                tail.append(_timed(client, fetch_frame(TOPIC, 0, end + number, 4096)))
                old_reads.append(_timed(client, fetch_frame(TOPIC, 0, places[number % len(places)], 1024)))
            answer = client.exchange(fetch_frame(TOPIC, 0, end // 2, 1024))
            found = struct.unpack_from(">q", records_of(answer, TOPIC))[0]
            if found != end // 2:
                raise RuntimeError(f"asked for offset {end // 2}, got {found}")
            client.close()
    return median(produce), median(tail), median(old_reads)


def _timed(client: BareClient, frame: bytes) -> float:
    started = time.perf_counter()
    client.exchange(frame)
    return time.perf_counter() - started


def measure() -> list[Result]:
    small, large = _costs(10 * 1024**2), _costs(10 * 1024**3)
    names = ("produce", "fetch at the end", "fetch of an old offset")
    return [
        Result(
            f"{name}: cost at 10 GB / at 10 MB",
            after / before,
            "",
            1.5,
            at_least=False,
            details={"us at 10 MB": before * 1e6, "us at 10 GB": after * 1e6},
        )
        for name, before, after in zip(names, small, large, strict=True)
    ]
