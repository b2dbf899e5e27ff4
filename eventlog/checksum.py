"""CRC-32C, from the extension module of the package `crc32c` alone.

The package itself reads its version from the metadata of what is installed, and has a command line: at 20 ms of CPU that is as much as
Python takes to start, and every command of ours would pay it.
"""

from collections.abc import Callable
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec


def _function() -> Callable[..., int]:
    package = find_spec("crc32c")  # found, not imported
    found = None if package is None else PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations)
    if found is None or found.loader is None:  # of another version, or frozen into one file
        from crc32c import crc32c as of_package  # noqa: PLC0415

        return of_package
    module = module_from_spec(found)
    found.loader.exec_module(module)
    function: Callable[..., int] = module.crc32c
    return function


crc32c = _function()
"""Return the CRC-32C of bytes, going on from the one given as second argument."""
