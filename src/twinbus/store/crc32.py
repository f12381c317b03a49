"""CRC-32 as zlib computes it, of journals and tables: with the instructions that processors have for it where ISA-L is installed.

It is computed over every byte that a store writes, so it counts for large messages. The values are the same, so a store can be
opened with and without.
"""

import zlib
from collections.abc import Callable
from importlib import import_module

crc32: Callable[..., int]
"""Of bytes or a view, and of what came before them."""

try:
    crc32 = import_module("isal.isal_zlib").crc32
except ImportError:  # no wheel for this machine
    crc32 = zlib.crc32
