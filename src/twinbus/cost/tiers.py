"""What a number of things costs where the price depends on how many there were before, such as operations in a month.

Tiers lie end to end from zero upwards. The caller says how many units came earlier in the month; the new units are
cut at the edges of tiers, and each piece has the price of its tier. Money is `Decimal` and exact: it is rounded where it is
shown and nowhere else.

    month to date   0          13,000,000           100,000,000
    price           | included | 0.80 a million     | 0.50 a million ...
"""

from collections.abc import Iterable, Sequence
from decimal import Context, Decimal
from typing import NamedTuple

EXACT = Context(prec=60)
"""Enough for counts of 64 bits times a price over 2**30 without rounding."""

ZERO = Decimal(0)


class Tier(NamedTuple):
    up_to: int | None
    """Units of the month at which the next tier begins; None for the last."""
    price: Decimal
    per: int
    """How many units the price is for."""

    def cost(self, units: int) -> Decimal:
        return EXACT.divide(EXACT.multiply(self.price, Decimal(units)), Decimal(self.per))


class Share(NamedTuple):
    """Units that fell into one tier."""

    tier: Tier
    starts_at: int
    units: int

    @property
    def money(self) -> Decimal:
        return self.tier.cost(self.units)


def split(tiers: Sequence[Tier], before: int, units: int) -> list[Share]:
    """Cut `units` that follow `before` earlier ones at the edges of tiers; tiers that get none are omitted."""
    assert before >= 0
    assert units >= 0
    shares = []
    floor, end = 0, before + units
    for tier in tiers:
        ceiling = end if tier.up_to is None else min(end, tier.up_to)
        here = ceiling - max(floor, before)
        if here > 0:
            shares.append(Share(tier, max(floor, before), here))
        if tier.up_to is None or tier.up_to >= end:
            break
        floor = tier.up_to
    return shares


def cost(tiers: Sequence[Tier], before: int, units: int) -> Decimal:
    return total(share.money for share in split(tiers, before, units))


def total(amounts: Iterable[Decimal]) -> Decimal:
    """Sum without rounding, which `sum` does at 28 digits."""
    result = ZERO
    for amount in amounts:
        result = EXACT.add(result, amount)
    return result


def mean_price(tiers: Sequence[Tier], before: int, units: int) -> Decimal:
    """What one of these units costs where all of them pay alike."""
    return EXACT.divide(cost(tiers, before, units), Decimal(units)) if units else ZERO
