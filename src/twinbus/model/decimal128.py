"""128-bit decimals, converted between the two layouts that Service Bus clients use: 16 bytes in, 16 bytes out.

IEEE 754 (what the Python SDK writes)        .NET's AMQP library (what every SDK reads)
1 bit sign, 14 bits biased exponent,          byte 0  sign bit | biased exponent >> 9
113 bits significand                          byte 1  (biased exponent & 0x7F) << 1
                                              2-3     zero
                                              4-15    significand, 96 bits
"""

# The exponents whose bits 7 and 8 are zero around the bias of 6176: the .NET layout has no room for those two. What is in that
# layout already has, read as IEEE 754, an exponent around 1,600.
_EXPONENTS = range(6144, 6272)


def to_net_layout(value: bytes) -> bytes:
    """The same number in the layout of .NET; unchanged if it is in that layout already, or does not fit it."""
    number = int.from_bytes(value, "big")
    biased = number >> 113 & 0x3FFF
    significand = number & (1 << 113) - 1
    if biased not in _EXPONENTS or significand >> 96:
        return value
    head = bytes((value[0] & 0x80 | biased >> 9, (biased & 0x7F) << 1, 0, 0))
    return head + significand.to_bytes(12, "big")
