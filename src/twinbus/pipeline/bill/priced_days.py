"""Which days have lines that are still right: prices of hours in, days to price again out.

A line changes with the counts of its hour and with the hour's prices. Those change with the price sheet, and with what
comes late for an earlier hour, but only where that moves an hour over the edge of a tier. So a day is remembered with the
prices it was computed with, and forgotten before any of its hours is counted again.
"""

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from twinbus.cost.month_to_date import HourPrice


class PricedDays:
    """Kept in a file; one that cannot be read only means that all days are priced again."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._prices: dict[str, str] = {}
        with suppress(FileNotFoundError, ValueError, TypeError):
            self._prices = dict(json.loads(file.read_text(encoding="utf-8")))

    def changed(self, prices: Iterable[HourPrice]) -> dict[str, list[HourPrice]]:
        """Days that were not priced with these prices, and the prices of their hours."""
        days: dict[str, list[HourPrice]] = defaultdict(list)
        for price in prices:
            days[price.date].append(price)
        return {day: of_day for day, of_day in sorted(days.items()) if self._prices.get(day) != _mark(of_day)}

    def forget(self, days: Iterable[str]) -> None:
        for day in days:
            self._prices.pop(day, None)
        self._write()

    def remember(self, days: Mapping[str, Sequence[HourPrice]]) -> None:
        if days:
            self._prices |= {day: _mark(of_day) for day, of_day in days.items()}
            self._write()

    def _write(self) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        draft = self._file.with_name(f"_tmp-{self._file.name}")
        draft.write_text(json.dumps(self._prices, indent=0, sort_keys=True), encoding="utf-8")
        draft.rename(self._file)


def _mark(prices: Sequence[HourPrice]) -> str:
    text = ";".join(map(repr, sorted(prices)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
