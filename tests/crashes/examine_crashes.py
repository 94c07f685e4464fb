"""Crashes of one recording, each written to a folder and examined there: for stories of tables and of tiers."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from barnabas.adapters.system import SeededEntropy
from barnabas.testing.crashes import Crash, Recording, crashes


def examine_crashes(
    recording: Recording, seed: int, place: Path, points: int, examine: Callable[[Path, Crash], None]
) -> int:
    """Write what each crash leaves into `place`, at most `points` times, and examine it; return how many there were."""
    tried = 0
    for crash in crashes(recording.operations, SeededEntropy(f"left/{seed}"), first=recording.began):
        if tried >= points:
            break
        tried += 1
        crash.left.write_to(place)
        try:
            with mock.patch.object(os, "fsync"):  # the power does not go again here, and it takes its time
                examine(place, crash)
        except Exception as error:
            error.add_note(f"seed {seed}, after {crash.operations} operations, what is left: {crash.number}")
            raise
        shutil.rmtree(place)
    return tried
