"""Choices that cost much for what they give: a deployment in, sentences out, each with the number behind it."""

from collections.abc import Iterator
from datetime import timedelta
from fractions import Fraction

from twinbus.cost.deployment import Deployment, seconds
from twinbus.cost.estimate import HOURS_IN_30_DAYS
from twinbus.meter.operation import UNIT_BYTES, units_of
from twinbus.model.pairing_limits import SET_ASIDE_SIZE, SYPHON_POLL

POLL_SHORT = timedelta(minutes=5)
SYPHONS_USUAL = 1
PINGS_MANY_A_DAY = 10_000
DAY_S = 86_400


def warnings(given: Deployment) -> list[str]:
    return [*_short_polls(given), *_many_syphons(given), *_pings(given), *_sizes(given)]


def _short_polls(given: Deployment) -> Iterator[str]:
    if given.syphons and given.poll < POLL_SHORT:
        times = seconds(SYPHON_POLL) / seconds(given.poll)
        yield (
            f"Polls of {_seconds(given.poll)} s cost {_number(times)} times as many idle receives as polls of 15 minutes "
            f"({_number(_idle_receives(given))} in 30 days); messages come home no sooner, for a poll ends when one arrives."
        )


def _many_syphons(given: Deployment) -> Iterator[str]:
    if given.syphons > SYPHONS_USUAL:
        extra = _idle_receives(given) * (given.syphons - SYPHONS_USUAL) / given.syphons
        yield (
            f"Each syphon beyond the first polls every backlog queue too: {_number(extra)} idle receives in 30 days "
            f"for {given.syphons - SYPHONS_USUAL} more. Keep as many as draining needs."
        )


def _pings(given: Deployment) -> Iterator[str]:
    a_day = given.entities * given.processes * Fraction(DAY_S) / seconds(given.ping_interval)
    if a_day > PINGS_MANY_A_DAY:
        yield (
            f"{given.entities} entities × {given.processes} processes ping {_number(a_day)} times a day while they are "
            "unavailable, also entities that were deleted or disabled for good without anyone telling the senders. "
            "Ping less often, or let fewer processes send."
        )


def _sizes(given: Deployment) -> Iterator[str]:
    over = given.size % UNIT_BYTES
    if given.size > UNIT_BYTES and 0 < over <= UNIT_BYTES // 16:
        yield (
            f"Messages of {given.size:,} bytes are {over:,} over a multiple of 64 KB and count as "
            f"{units_of(given.size)} operations instead of {units_of(given.size) - 1}."
        )
    if units_of(given.size + SET_ASIDE_SIZE) > units_of(given.size):
        yield (
            f"Rewritten for a backlog queue, messages of {given.size:,} bytes pass a multiple of 64 KB: "
            f"{units_of(given.size + SET_ASIDE_SIZE)} operations in the backlog, {units_of(given.size)} at home."
        )


def _idle_receives(given: Deployment) -> Fraction:
    return given.backlog_queues * given.syphons * Fraction(HOURS_IN_30_DAYS * 3_600) / seconds(given.poll)


def _seconds(duration: timedelta) -> str:
    return _number(seconds(duration))


def _number(number: Fraction) -> str:
    return f"{number.numerator:,}" if number.denominator == 1 else f"{float(number):,.1f}"
