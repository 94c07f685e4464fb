"""The part of the build that pyproject.toml cannot say: BARNABAS_COMPILE=1 compiles the inner loops by mypyc.

A wheel then has each module of `COMPILED` twice, as source and as an extension, which Python imports first; without the
variable the wheel is pure Python. Both have the same version and behaviour (docs/design/architecture.md, 'Compiled
modules').
"""

import os
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent
COMPILED = (
    "core.message.varint",
    "core.message.record_parser",
    "core.message.batch_header",
    "core.message.batch_reader",
    "core.message.batch_writer",
    "core.message.numbered_header",
    "core.message.record_scan",
    "core.message.record_validation",
    "core.message.classic.entry",
    "core.message.classic.reader",
    "core.message.classic.validation",
    "core.classic.producer.run",
    "core.client.consumer.fetch_position",
    "core.client.producer.hashing",
    "core.client.producer.producer_batch",
    "core.client.producer.record_accumulator",
    "adapters.transport_tcp.connection",
    "adapters.transport_tcp.inbound",
    "adapters.transport_tcp.outbound",
    "adapters.transport_tcp.polling",
    "adapters.transport_tcp.reactor",
    "adapters.transport_tcp.timers",
    "adapters.wire_kafka.fetch",
    "adapters.wire_kafka.produce",
    "adapters.wire_kafka.server",
    "adapters.wire_kafka.wire",
    "app.clients.shared.delivery",
    "app.clients.producer.record_appender",
)
"""The modules whose code runs once for each record, batch or field of a request.

They import each other as compiled code, all others as Python.
"""


class CompileByMypyc(build_ext):
    """Translates the modules to C when the extensions are built, and not when a build only asks for metadata."""

    def run(self) -> None:
        for left in Path(self.build_lib).rglob(f"*{sysconfig.get_config_var('EXT_SUFFIX')}"):
            left.unlink()  # of an earlier build, of a module that is not compiled any longer
        # Not within the checkout: the link to it would be a circle for whatever walks the checkout.
        with tempfile.TemporaryDirectory(prefix="barnabas-compile-") as work:
            self.distribution.ext_modules = translated(Path(work))
            self.initialize_options()
            self.finalize_options()
            super().run()


def translated(work: Path) -> list[Extension]:
    """Return the extensions, of C that mypyc wrote to the folder `work` from the modules.

    The checkout is the package itself, whatever its folder's name is: a link gives the modules their names.
    """
    try:
        from mypyc.build import mypycify
    except ImportError as error:
        sys.exit(f"BARNABAS_COMPILE=1 needs mypy, which has the compiler mypyc: pip install mypy ({error})")
    (work / "barnabas").symlink_to(ROOT, target_is_directory=True)
    paths = ["barnabas/" + name.replace(".", "/") + ".py" for name in COMPILED]
    options = ["--config-file=", "--strict", "--follow-imports=silent", "--ignore-missing-imports"]
    options += ["--no-warn-unused-ignores", "--explicit-package-bases", "--cache-dir=mypy"]
    before = Path.cwd()
    os.chdir(work)
    os.environ["MYPYPATH"] = "."
    try:
        # Without debug information, which has the names of temporary folders: two builds give the same bytes.
        made: list[Extension] = mypycify(
            [*options, *paths], opt_level="3", debug_level="0", target_dir=str(work / "c"), group_name="barnabas"
        )
    finally:
        os.chdir(before)
    return made


if os.environ.get("BARNABAS_COMPILE") == "1":
    # The name stands for all extensions, so that setuptools builds a wheel for this platform.
    setup(
        script_name="setup.py",
        ext_modules=[Extension("barnabas.compiled", sources=[])],
        cmdclass={"build_ext": CompileByMypyc},
    )
else:
    setup(script_name="setup.py")
