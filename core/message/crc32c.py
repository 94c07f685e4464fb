"""CRC-32C of the current format: the extension module of the package `crc32c`, whose other modules load `argparse` and
`importlib.metadata` (25 ms and 4 MB)."""

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crc32c import crc32c
else:

    def _crc32c():
        package = find_spec("crc32c")
        if (
            package is not None
            and (spec := PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)) is not None
        ):
            module = module_from_spec(spec)
            spec.loader.exec_module(module)
            if hasattr(module, "crc32c"):
                return module.crc32c
        from crc32c import crc32c as from_package

        return from_package

    crc32c = _crc32c()

__all__ = ["crc32c"]
