"""Apache Kafka's own tool reads what compaction leaves: thinner and empty batches, horizons, holes."""

import re
import subprocess
from pathlib import Path

import pytest
from attrs import evolve
from support.cleaned_log import COMPACT, CleanedLogs, messages_of
from support.compat.java_client import QUICK, java_classpath
from support.compat.model import Unavailable
from support.waiting import PATIENCE_S

from barnabas.core.message.codec import Codecs
from barnabas.plugins.builtin.codecs import GzipCodec
from barnabas.testing.logs import TP, batch

pytestmark = [pytest.mark.slow, pytest.mark.process]

TOOL = "org.apache.kafka.tools.DumpLogSegments"


def test_the_log_is_whole(tmp_path: Path) -> None:
    try:
        classpath = java_classpath(4)
    except Unavailable as error:
        pytest.skip(str(error))
    codecs = Codecs([GzipCodec()])
    logs = CleanedLogs(evolve(COMPACT, segment_bytes=100_000), codecs=codecs)
    for number in range(30):
        keys = [b"k%d" % (number * each % 11) for each in range(5)]
        values = [None if each == number % 9 else b"%d" % number for each in range(5)]
        records = batch(*values, keys=keys, at=1000 + number, codec=GzipCodec() if number % 3 == 0 else None)
        logs.log.append(records, leader_epoch=0, now_ms=logs.clock.now_ms())
    logs.clean()
    file = tmp_path / f"{0:020d}.log"
    file.write_bytes(logs.disk.folders[str(TP)][file.name].data)
    command = ["java", *QUICK, "-cp", classpath, TOOL, "--print-data-log", "--files", str(file)]
    observed = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=True).stdout
    assert "isvalid: true" in observed
    assert "isvalid: false" not in observed
    assert "deleteHorizonMs: OptionalLong[" in observed
    found = [
        (int(offset), int(time))
        for offset, time in re.findall(r"^\| offset: (\d+) (?:isValid: \S+ )?CreateTime: (\d+)", observed, re.MULTILINE)
    ]
    remaining = [message for message in messages_of(logs.log, codecs) if message.key != b"rolled"]
    assert found == [(message.offset, message.timestamp_ms) for message in remaining], observed
