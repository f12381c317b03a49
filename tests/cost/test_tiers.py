"""Units are cut at the edges of tiers, and money is exact."""

from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.cost.price_sheet_file import read_price_sheet
from twinbus.cost.tiers import Tier, cost, mean_price, split

STANDARD = read_price_sheet(None).plan("standard")


@pytest.mark.parametrize(
    ("before", "units", "money"),
    [
        (0, 13_000_000, "0"),
        (0, 13_000_001, "0.0000008"),
        (12_999_999, 1, "0"),
        (13_000_000, 1, "0.0000008"),
        (0, 100_000_000, "69.6"),
        (99_999_999, 2, "0.0000013"),
        (0, 2_500_000_000, "1269.6"),
        (0, 2_600_000_000, "1289.6"),
        (2_500_000_000, 1_000_000, "0.2"),
        (50_000_000, 0, "0"),
    ],
)
@pytest.mark.rule("D5")
def test_each_unit_has_the_price_of_the_tier_it_falls_into(before: int, units: int, money: str) -> None:
    assert cost(STANDARD.operations, before, units) == Decimal(money)


def test_a_share_says_where_in_the_month_it_began() -> None:
    shares = split(STANDARD.operations, 12_000_000, 90_000_000)
    assert [(share.starts_at, share.units) for share in shares] == [
        (12_000_000, 1_000_000),
        (13_000_000, 87_000_000),
        (100_000_000, 2_000_000),
    ]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20))
def test_what_is_billed_in_pieces_costs_what_it_costs_at_once(pieces: list[int]) -> None:
    before, money = 0, Decimal(0)
    for piece in pieces:
        money += cost(STANDARD.operations, before, piece)
        before += piece
    assert money == cost(STANDARD.operations, 0, sum(pieces))


def test_bandwidth_counts_from_its_included_volume_on() -> None:
    gb = 1024**3
    assert cost(STANDARD.bandwidth, 0, 5 * gb) == 0
    assert cost(STANDARD.bandwidth, 4 * gb, 3 * gb) == Decimal("0.16")


def test_a_single_byte_is_not_rounded_away() -> None:
    assert cost([Tier(None, Decimal("0.08"), 1024**3)], 0, 1) * 1024**3 == Decimal("0.08")


def test_units_of_an_hour_that_crosses_an_edge_share_its_mean_price() -> None:
    assert mean_price(STANDARD.operations, 12_999_999, 2) == Decimal("0.0000004")
    assert mean_price(STANDARD.operations, 0, 0) == 0
