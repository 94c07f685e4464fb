"""A data folder in memory that is damaged, mended and opened again."""

from collections.abc import Callable, Sequence

from support.classic_frames import message_set

from barnabas.adapters.storage_memory import MemoryDisk, MemoryLogDir
from barnabas.adapters.system import ManualClock, ManualScheduler, SeededEntropy
from barnabas.core.log.config import LogConfig
from barnabas.core.log.manager.log_manager import LogManager
from barnabas.core.log.partition_log.unified_log import UnifiedLog
from barnabas.core.logtools.verify.data_folder import CheckContext, CheckResult, DataFolderCheck, RepairResult, repair
from barnabas.core.logtools.verify.findings import Finding, problems
from barnabas.core.logtools.verify.overlay_folder import OverlayLogDir
from barnabas.core.message.batch_header import is_crc_valid, parse_header
from barnabas.core.message.classic.entry import LENGTH
from barnabas.core.message.classic.message_set import ClassicMessageSet
from barnabas.core.message.codec import NO_CODECS
from barnabas.plugins.builtin.codecs import builtin_codecs
from barnabas.plugins.builtin.deletion import KafkaDeletionPolicy
from barnabas.ports.errors import ApiError
from barnabas.ports.report import Level, Line
from barnabas.ports.storage import LogDir
from barnabas.ports.types import Offset, TopicPartition
from barnabas.testing.logs import batch, bytes_of, numbered

TP = TopicPartition("t", 0)
CONFIG = LogConfig(segment_bytes=700, index_interval_bytes=150, retention_ms=-1)


class RepairHarness:
    """`start` and `stop` or `crash` as often as wanted; between them files may be changed."""

    def __init__(self, config: LogConfig = CONFIG) -> None:
        self.config = config
        self.clock = ManualClock()
        self.disk = MemoryDisk(now_ms=self.clock.now_ms)
        self.reports: list[str] = []
        self.written: dict[int, bytes] = {}
        """Each batch as it stands in the log, by its base offset."""

    # --- a broker's logs

    def start(self) -> LogManager:
        self.scheduler = ManualScheduler(self.clock)
        self.log_dir().root.write_small(".lock", b"")
        self.disk.in_use = False
        self.reports.clear()
        self.manager = LogManager(
            [MemoryLogDir(self.disk, path="/data")],
            clock=self.clock,
            scheduler=self.scheduler,
            config_for=lambda _: self.config,
            codecs=NO_CODECS,
            policy_for=lambda *_: KafkaDeletionPolicy(),
            report=self.reports.append,
            entropy=SeededEntropy(1),
        )
        self.manager.load()
        self.manager.high_watermark_of = lambda key: self.manager.logs()[key].log_end_offset
        self.manager.start()
        return self.manager

    def fill_classic(self, values: Sequence[bytes]) -> UnifiedLog:
        """Append messages one by one; readers see them when they are flushed."""
        log = self.manager.get(TP) or self.manager.create(TP)
        for value in values:
            records = message_set(value)
            base = log.append(memoryview(bytearray(records)), leader_epoch=0, now_ms=self.clock.now_ms()).base_offset
            self.written[base] = records
        return log

    def fill(self, sizes: Sequence[int], partition: TopicPartition = TP) -> UnifiedLog:
        """Append a batch for each size, in records; every other one of an idempotent producer."""
        log = self.manager.get(partition) or self.manager.create(partition)
        sequences = dict.fromkeys((7, 8), 0)
        for number, size in enumerate(sizes):
            values = [b"%08d" % (number * 100 + n) for n in range(size)]
            producer = 7 + number % 4 // 2
            records = batch(*values, at=1000 + number)
            if number % 2 and self.config.message_format == "v2":
                records = numbered(*values, producer=producer, sequence=sequences[producer], at=1000 + number)
                sequences[producer] += size
            writable = memoryview(bytearray(records))
            base = log.append(writable, leader_epoch=number // 5, now_ms=self.clock.now_ms()).base_offset
            self.written[base] = bytes(writable)
        return log

    def flush(self) -> None:
        log = self.manager.logs()[TP]
        for _ in range(100):
            if log.recovery_point == log.log_end_offset:
                return
            self.manager.flush(log)
            self.scheduler.run_pending()
        raise AssertionError(f"flushed up to {log.recovery_point}")

    def checkpoint(self) -> None:
        self.manager.checkpoint()
        for _ in range(10):
            self.scheduler.run_pending()

    def stop(self) -> None:
        ended: list[bool] = []
        self.manager.stop(lambda: ended.append(True))
        for _ in range(100):
            if ended:
                return
            self.scheduler.advance(10)
        raise AssertionError("it does not stop")

    def crash(self, *, power_cut: bool = False) -> None:
        self.disk = self.disk.after_crash(power_cut=power_cut)

    def served(self) -> dict[int, bytes]:
        """Return the batches that a reader gets, whole and right, by base offset."""
        log = self.manager.logs()[TP]
        found: dict[int, bytes] = {}
        offset = log.log_start_offset
        while offset < log.log_end_offset:
            try:
                data = bytes_of(log, offset, max_bytes=1)
            except ApiError as error:
                offset = Offset(getattr(error, "next_offset", offset + 1))
                continue
            if not data:
                break
            header = parse_header(data)
            assert is_crc_valid(data, header)
            found[header.base_offset] = data[: header.size]
            offset = Offset(max(header.next_offset, offset + 1))
        return found

    # --- looking after its files

    def log_dir(self) -> MemoryLogDir:
        self.disk.in_use = False
        return MemoryLogDir(self.disk, path="/data")

    def check(self, log_dir: LogDir | None = None, *, alone: bool = True) -> CheckResult:
        return DataFolderCheck(log_dir or self.log_dir(), CheckContext(alone=alone, codecs=builtin_codecs())).check()

    def problems(self) -> list[Finding]:
        return problems(self.check().findings)

    def repair(self, *, dry: bool = False, alone: bool = True) -> RepairResult:
        log_dir: LogDir = self.log_dir()
        if dry:
            log_dir = OverlayLogDir(log_dir)
        return repair(log_dir, lambda here: self.check(here, alone=alone).findings)

    def complaints(self) -> list[str]:
        """Return the lines of the last start that an operator has to read."""
        return [line for line in self.reports if not (isinstance(line, Line) and line.level < Level.WARNING)]

    # --- its files

    def names(self, folder: str = "t-0") -> list[str]:
        return sorted(self.disk.folders[folder] if folder else self.disk.root)

    def content(self, name: str, folder: str = "t-0") -> bytearray:
        return (self.disk.folders[folder] if folder else self.disk.root)[name].data

    def change(self, name: str, how: Callable[[bytearray], None], folder: str = "t-0") -> None:
        how(self.content(name, folder))

    def put(self, name: str, content: bytes, folder: str = "t-0") -> None:
        self.log_dir().folder(folder).write_small(name, content)

    def served_classic(self) -> dict[int, bytes]:
        """Return the messages that a reader gets, by offset; empty messages are left out."""
        log = self.manager.logs()[TP]
        start = log.log_start_offset
        data = b"".join(bytes(self.content(name)) for name in self.names() if name.endswith(".kafka"))
        assert start + len(data) == log.log_end_offset
        found: dict[int, bytes] = {}
        position = 0
        while position < len(data):
            entry = data[position : position + LENGTH.size + LENGTH.unpack_from(data, position)[0]]
            if list(ClassicMessageSet(entry, builtin_codecs())):
                found[start + position] = entry
            position += len(entry)
        return found

    def everything(self) -> dict[str, bytes]:
        files = {name: bytes(content.data) for name, content in self.disk.root.items()}
        for folder, contents in self.disk.folders.items():
            files |= {f"{folder}/{name}": bytes(content.data) for name, content in contents.items()}
        return files
