"""Where the sections of an ordinary message start: payload in, positions out, and nothing decoded (AMQP 1.0 part 3, section 3.2).

This runs for every incoming message, so it is a single walk over the sections. A message that is not ordinary is left to
`twinbus.amqp.codec.sections.canonical`, which puts its sections in order.
"""

from struct import Struct, error
from typing import TypeAlias

from twinbus.amqp.codec.layout import SIZE8, SIZE32, UNKNOWN, WIDTHS, skip_value
from twinbus.amqp.codec.sections import (
    APPLICATION_PROPERTIES,
    BODY_SECTIONS_MAX,
    DATA,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    TooManySections,
    canonical,
)
from twinbus.amqp.errors import DecodeError

Bounds: TypeAlias = tuple[int, int, int, int, int, int]
"""Starts of header, delivery annotations, message annotations, properties, application properties, and the rest."""

_U32 = Struct(">I").unpack_from


def _forms(code: int) -> tuple[int, ...]:
    """WIDTHS for the value of one kind of section: UNKNOWN for constructors that it cannot have."""
    constructors = {
        HEADER: (0x45, 0xC0, 0xD0),
        DELIVERY_ANNOTATIONS: (0xC1, 0xD1),
        MESSAGE_ANNOTATIONS: (0xC1, 0xD1),
        PROPERTIES: (0x45, 0xC0, 0xD0),
        APPLICATION_PROPERTIES: (0xC1, 0xD1),
        DATA: (0xA0, 0xB0),
        SEQUENCE: (0x45, 0xC0, 0xD0),
        VALUE: range(256),
        FOOTER: (0xC1, 0xD1),
    }.get(code, ())
    return tuple(WIDTHS[form] if form in constructors else UNKNOWN for form in range(256))


_FORMS = tuple(_forms(code) for code in range(256))


def section_bounds(data: bytes, body_count_max: int = BODY_SECTIONS_MAX) -> Bounds | None:
    """An absent section starts where the next one does. None if the sections are not in the standard order, or not
    all with a `smallulong` descriptor. TooManySections if the body has more than so many.
    """
    size = len(data)
    pos = last = repeated_count = 0
    header_at = delivery_at = annotations_at = properties_at = application_at = rest_at = -1
    try:
        while pos < size:
            if data[pos] != 0 or data[pos + 1] != 0x53:
                return None
            code = data[pos + 2]
            if code <= last or last >= DATA:
                may_follow = code == FOOTER != last or (code == last and code in (DATA, SEQUENCE))
                if not may_follow:
                    return None
                repeated_count += 1
                if repeated_count >= body_count_max and code != FOOTER:
                    raise TooManySections.over(body_count_max)
            elif code >= DATA:
                rest_at = pos
            elif code == PROPERTIES:
                properties_at = pos
            elif code == APPLICATION_PROPERTIES:
                application_at = pos
            elif code == MESSAGE_ANNOTATIONS:
                annotations_at = pos
            elif code == HEADER:
                header_at = pos
            else:
                delivery_at = pos
            last = code
            width = _FORMS[code][data[pos + 3]]
            if width == SIZE8:
                pos += 5 + data[pos + 4]
            elif width == SIZE32:
                pos += 8 + _U32(data, pos + 4)[0]
            elif width == UNKNOWN:
                raise DecodeError(
                    f"0x{data[pos + 3]:02x} at byte {pos + 3} cannot be the value of section 0x{code:02x}"
                )
            else:
                pos = skip_value(data, pos + 3)
    except (IndexError, error):
        pos = size + 1
    if pos > size:
        raise DecodeError(f"the last section extends beyond the end of the message ({size} bytes)")
    if rest_at < 0:
        rest_at = size
    if application_at < 0:
        application_at = rest_at
    if properties_at < 0:
        properties_at = application_at
    if annotations_at < 0:
        annotations_at = properties_at
    if delivery_at < 0:
        delivery_at = annotations_at
    return (
        (delivery_at if header_at < 0 else header_at),
        delivery_at,
        annotations_at,
        properties_at,
        application_at,
        rest_at,
    )


def ordered_sections(payload: bytes, body_count_max: int = BODY_SECTIONS_MAX) -> tuple[bytes, Bounds]:
    """The payload with its sections in the standard order, which it nearly always has, and where they start."""
    bounds = section_bounds(payload, body_count_max)
    if bounds is None:
        payload = canonical(payload)
        bounds = section_bounds(payload, body_count_max)
        assert bounds is not None, "canonical puts sections in order"
    return payload, bounds
