"""Decimals in the two layouts of the SDKs."""

import pytest

from twinbus.model.decimal128 import to_net_layout


def ieee(significand: int, exponent: int, sign: int = 0) -> bytes:
    return (sign << 127 | (exponent + 6176) << 113 | significand).to_bytes(16, "big")


def net(significand: int, exponent: int, sign: int = 0) -> bytes:
    biased = exponent + 6176
    return bytes((sign << 7 | biased >> 9, (biased & 0x7F) << 1, 0, 0)) + significand.to_bytes(12, "big")


@pytest.mark.parametrize(
    ("significand", "exponent", "sign"),
    [(0, 0, 0), (123, -1, 0), (123, -1, 1), (2**96 - 1, -28, 0), (1, -32, 1), (7, 95, 0)],
)
def test_a_decimal_is_laid_out_as_dotnet_has_it(significand: int, exponent: int, sign: int) -> None:
    assert to_net_layout(ieee(significand, exponent, sign)) == net(significand, exponent, sign)


def test_a_decimal_in_that_layout_already_stays() -> None:
    value = net(123, -1, 1)
    assert to_net_layout(value) == value


@pytest.mark.parametrize("value", [ieee(2**96, 0), ieee(1, -33), ieee(1, 96), bytes.fromhex("78" + "00" * 15)])
def test_a_decimal_that_layout_has_no_room_for_stays(value: bytes) -> None:
    assert to_net_layout(value) == value
