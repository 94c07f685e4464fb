"""`barnabas log dump` and `barnabas log verify` on classic segments."""

import json
from pathlib import Path

import pytest
from support.classic_frames import entry, gzip_wrapper, message_set
from typer import Typer
from typer.testing import CliRunner

from barnabas.app.cli.log.command import register
from barnabas.core.logtools.dump import examine_classic_segment

DATA = entry(b"one", magic=0) + entry(b"two") + gzip_wrapper(b"a", b"b")
FIRST = f"{0:020d}.kafka"


def test_a_sound_segment() -> None:
    found = list(examine_classic_segment(DATA))
    assert [(f.position, f.size, f.magic, f.codec_id, f.payload_bytes) for f in found] == [
        (0, 12, 0, 0, 3),
        (12, 13, 1, 0, 3),
        (25, len(DATA) - 25, 1, 1, len(DATA) - 35),
    ]
    assert all(f.crc_valid and f.problem is None for f in found)


def test_a_flipped_bit_is_a_crc_problem_and_the_rest_is_still_read() -> None:
    damaged = bytearray(DATA)
    damaged[23] ^= 1
    found = list(examine_classic_segment(damaged))
    assert [(f.crc_valid, bool(f.problem)) for f in found] == [(True, False), (False, True), (True, False)]
    assert "CRC-32" in str(found[1].problem)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (b"\0\0", "its size field has only 2 bytes"),
        (entry(b"cut")[:-1], "12 of its 13 bytes exist"),
        (bytes(20), "it claims 0 bytes"),
        (b"\xff\xff\xff\xff" + bytes(10), "it claims -1 bytes"),
        (b"\0\0\0\x08\x07" + bytes(20), "magic 7"),
        (entry(b"x", codec=3), "codec 3"),
    ],
)
def test_where_no_message_is(tail: bytes, text: str) -> None:
    *sound, last = examine_classic_segment(DATA + tail)
    assert len(sound) == 3
    assert last.position == len(DATA)
    assert text in str(last.problem)


@pytest.fixture
def log_command(tmp_path: Path) -> "LogCommand":
    return LogCommand(tmp_path / "page views-0")


class LogCommand:
    """`barnabas log` on the folder of a partition."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._app = Typer()
        register(self._app)

    def leave(self, name: str, data: bytes) -> None:
        (self.folder / name).write_bytes(data)

    def __call__(self, *arguments: str, exit_code: int = 0) -> str:
        result = CliRunner().invoke(self._app, ["log", *arguments, str(self.folder)], catch_exceptions=False)
        assert result.exit_code == exit_code, result.output
        return result.output


def test_dump_prints_positions_sizes_magic_codec_and_crc(log_command: LogCommand) -> None:
    damaged = bytearray(DATA)
    damaged[23] ^= 1
    log_command.leave(f"{700:020d}.kafka", bytes(damaged))
    lines = log_command("dump").splitlines()
    assert lines[1] == "  position 0  offset 700  next 712  bytes 12  payload 3  magic 0  codec none  crc ok"
    assert lines[2].startswith(
        "  position 12  offset 712  next 725  bytes 13  payload 3  magic 1  codec none  crc WRONG"
    )
    assert "codec gzip  crc ok" in lines[3]
    printed = [json.loads(line) for line in log_command("dump", "--json").splitlines()]
    assert [each["crc"] for each in printed] == ["ok", "WRONG", "ok"]


def test_dump_prints_the_messages_in_wrappers(log_command: LogCommand) -> None:
    log_command.leave(FIRST, DATA)
    found = [json.loads(line) for line in log_command("dump", "--records", "--json").splitlines()]
    assert [[record["value"] for record in each["records"]] for each in found] == [["one"], ["two"], ["a", "b"]]
    assert [record["offset"] for record in found[2]["records"]] == [25, len(DATA)]
    assert "'value': 'two'" in log_command("dump", "--records")


def test_verify_reports_damage_in_classic_segments(log_command: LogCommand) -> None:
    log_command.leave(FIRST, DATA)
    log_command.leave(f"{len(DATA):020d}.kafka", message_set(b"x"))
    assert "2 segments, 0 batches, 4 messages, 0 problems" in log_command("verify")
    log_command.leave(FIRST, DATA[:-1])
    out = log_command("verify", exit_code=1)
    assert f"{FIRST} at position 25: the message is truncated" in out
    assert json.loads(log_command("verify", "--json", exit_code=1))["messages"] == 3
