"""The owner of a claim as a number, so that claiming a message does not rewrite it.

A streaming query is called `spark-` and 16 hexadecimal digits: as a signed number of 64 bits this name fits into the row of
a deferred message, in `due_at`, which means nothing else there. Any other name is written on the message itself.
"""

import re

_NAME = re.compile(r"spark-([0-9a-f]{16})")
_SIGN, _ALL = 1 << 63, 1 << 64


def owner_number(name: str) -> int | None:
    """Never 0, which stands for no owner; None if the name is not of this kind."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    number = int(found[1], 16)
    return (number - _ALL if number >= _SIGN else number) or None


def owner_name(number: int) -> str:
    return f"spark-{number % _ALL:016x}"
