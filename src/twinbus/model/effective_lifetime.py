"""The time to live that a message really has, shown in its delivery: content and expiry in, header and properties out.

The entity's default is a ceiling for what a sender asks for. Where it applies, a receiver finds the effective time in
the header, as milliseconds, and in the properties as the span from creation-time to absolute-expiry-time: the only way to
say more than 49 days. What is stored stays as it was sent, so an entity that a message is forwarded to starts from the sender's
own time again.
"""

from functools import lru_cache
from struct import Struct

from twinbus.amqp.codec.encode import encode_value
from twinbus.amqp.codec.layout import SIZE8, WIDTHS, skip_value
from twinbus.amqp.codec.sections import PROPERTIES
from twinbus.amqp.codec.types import UInt
from twinbus.clock import Millis
from twinbus.model.content import DESCRIPTOR_SIZE, compound_start
from twinbus.model.header import read_header, with_time_to_live
from twinbus.model.identity import lifetime
from twinbus.model.message_limits import TIME_TO_LIVE_MAX

_ABSOLUTE_EXPIRY_TIME = 8  # in the list of properties; creation-time follows it
_NULL = b"\x40"
_times = Struct(">BqBq").pack
_TIMESTAMP = 0x83
_small_list = Struct(">BBBBBB").pack
_large_list = Struct(">BBBBII").pack


def own_time_to_live(header: bytes, content: bytes, properties_at: int) -> Millis | None:
    """What the sender asked for, by its header section and, for more than 49 days, its properties."""
    _, time_to_live = read_header(header[DESCRIPTOR_SIZE:])
    if time_to_live == TIME_TO_LIVE_MAX:
        return lifetime(content, properties_at + DESCRIPTOR_SIZE) or time_to_live
    return time_to_live


@lru_cache(maxsize=1024)
def shown_header(header: bytes, time_to_live: Millis) -> bytes:
    """The header section with this time to live, or the longest that it can say."""
    return with_time_to_live(header, encode_value(UInt(min(time_to_live, TIME_TO_LIVE_MAX))))


def _after(section: bytes, pos: int, count: int) -> int:
    """The position after this many fields, most of which are null or short texts."""
    for _ in range(count):
        code = section[pos]
        if code == _NULL[0]:
            pos += 1
        elif WIDTHS[code] == SIZE8:
            pos += 2 + section[pos + 1]
        else:
            pos = skip_value(section, pos)
    return pos


def shown_properties(section: bytes, since: Millis, expires_at: Millis) -> bytes:
    """The properties section with these times; all other fields stay byte for byte."""
    count, start = compound_start(section, DESCRIPTOR_SIZE)
    times_at = _after(section, start, min(count, _ABSOLUTE_EXPIRY_TIME))
    before = section[start:times_at] + _NULL * (_ABSOLUTE_EXPIRY_TIME - count)
    times_end = _after(section, times_at, min(count - _ABSOLUTE_EXPIRY_TIME, 2))
    elements = before + _times(_TIMESTAMP, expires_at, _TIMESTAMP, since) + section[times_end:]
    count = max(count, _ABSOLUTE_EXPIRY_TIME + 2)
    if len(elements) < 0xFF:
        return _small_list(0, 0x53, PROPERTIES, 0xC0, len(elements) + 1, count) + elements
    return _large_list(0, 0x53, PROPERTIES, 0xD0, len(elements) + 4, count) + elements
