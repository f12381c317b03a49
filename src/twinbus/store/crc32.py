"""CRC-32 as zlib computes it, of journals and tables: with the instructions that processors have for it where ISA-L is installed.

It is computed over every byte that a store writes. For a message of 64 KB zlib takes as long as four copies of it, ISA-L less than
one. The values are the same, so a store can be opened with and without.
"""

try:
    from isal.isal_zlib import crc32
except ImportError:  # no wheel for this machine
    from zlib import crc32

__all__ = ["crc32"]
