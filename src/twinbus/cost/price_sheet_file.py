"""A TOML file in, a `PriceSheet` out, or one line that says which key of which file is wrong.

`example_prices.toml` beside this module is the built-in sheet, and shows every key.
"""

import tomllib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, NoReturn

from twinbus.cost.prices import Plan, PriceSheet, bandwidth_tiers, operation_tiers
from twinbus.errors import ArgumentError

EXAMPLE = "example_prices.toml"
SHEET_KEYS = ("name", "as_of", "currency", "is_example", "default_plan", "plan")
PLAN_KEYS = ("base_per_month", "included_operations", "bandwidth_included_gb", "bandwidth_per_gb", "tiers")
TIER_KEYS = ("up_to", "per_million")
AMOUNT_MAX = 1_000_000_000
"""Of any currency; the lines of a bill have room for a price of a unit that comes from this."""


def example_text() -> str:
    """The shipped sheet as it stands in its file, comments and all."""
    return resources.files("twinbus.cost").joinpath(EXAMPLE).read_text(encoding="utf-8")


def read_price_sheet(file: Path | None) -> PriceSheet:
    """The sheet in a file; the shipped example for None."""
    if file is None:
        return parse_price_sheet(example_text(), EXAMPLE)
    try:
        text = file.read_text(encoding="utf-8-sig")  # some editors put a mark before it
    except OSError as fault:
        raise ArgumentError(
            f"The price sheet {file} cannot be read: {fault.strerror}. "
            "Create one with: twinbus cost prices --write prices.toml"
        ) from None
    except UnicodeDecodeError:
        raise ArgumentError(f"The price sheet {file} is not UTF-8 text. Save it as such.") from None
    return parse_price_sheet(text, str(file))


def parse_price_sheet(text: str, place: str) -> PriceSheet:
    try:
        # Prices must stay as written: 0.1 has no exact binary form.
        values = tomllib.loads(text, parse_float=Decimal)
    except ValueError as wrong:  # also of a number with more digits than Python reads
        raise ArgumentError(f"{place} is not TOML: {wrong}.") from None
    sheet = _Table(place, "", values)
    sheet.only(SHEET_KEYS)
    plans = {name: _plan(sheet.below("plan").below(name), name) for name in sheet.below("plan").values}
    if not plans:
        sheet.refuse("plan", "has no plan in it. Write one such as [plan.standard]")
    default = sheet.text("default_plan")
    if default not in plans:
        sheet.refuse("default_plan", f"is '{default}', which is none of the plans {', '.join(plans)}")
    return PriceSheet(
        name=sheet.text("name"),
        as_of=sheet.day("as_of"),
        currency=sheet.text("currency"),
        is_example=sheet.truth("is_example"),
        default_plan=default,
        plans=plans,
    )


def _plan(table: "_Table", name: str) -> Plan:
    table.only(PLAN_KEYS)
    included = table.whole("included_operations")
    return Plan(
        name=name,
        base_per_month=table.amount("base_per_month"),
        operations=operation_tiers(included, tuple(_paid_tiers(table, included))),
        bandwidth=bandwidth_tiers(table.amount("bandwidth_included_gb"), table.amount("bandwidth_per_gb")),
    )


def _paid_tiers(plan: "_Table", included: int) -> Iterator[tuple[int | None, Decimal]]:
    tiers = plan.list_of("tiers")
    floor = included
    for tier in tiers:
        tier.only(TIER_KEYS)
        is_last = tier is tiers[-1]
        if is_last and "up_to" in tier.values:
            tier.refuse("up_to", "must be omitted in the last tier, which has no end")
        up_to = None if is_last else tier.whole("up_to")
        if up_to is not None and up_to <= floor:
            tier.refuse("up_to", f"is {up_to:,} and must be more than {floor:,}, where this tier begins")
        floor = floor if up_to is None else up_to
        yield up_to, tier.amount("per_million")


@dataclass(frozen=True, slots=True)
class _Table:
    """One table of the sheet; refusals name the file and the whole key."""

    file: str
    path: str
    values: Mapping[str, Any]

    def refuse(self, key: str, why: str) -> NoReturn:
        raise ArgumentError(f"{self.file}: '{self._key(key)}' {why}.")

    def only(self, known: Collection[str]) -> None:
        for key in self.values:
            if key not in known:
                self.refuse(key, f"is unknown. Use {', '.join(known)}")

    def below(self, key: str) -> "_Table":
        value = self._value(key)
        if not isinstance(value, Mapping):
            self.refuse(key, "must be a table")
        return _Table(self.file, self._key(key), value)

    def list_of(self, key: str) -> list["_Table"]:
        value = self._value(key)
        if not isinstance(value, list) or not value or not all(isinstance(each, Mapping) for each in value):
            self.refuse(key, "must be a list of one or more tables such as { per_million = 0.05 }")
        return [_Table(self.file, f"{self._key(key)}[{index}]", each) for index, each in enumerate(value, 1)]

    def text(self, key: str) -> str:
        value = self._value(key)
        if not isinstance(value, str) or not value:
            self.refuse(key, "must be a string")
        return value

    def truth(self, key: str) -> bool:
        value = self._value(key)
        if not isinstance(value, bool):
            self.refuse(key, "must be true or false")
        return value

    def day(self, key: str) -> date:
        value = self._value(key)
        if not isinstance(value, date) or isinstance(value, datetime):
            self.refuse(key, "must be a date such as 2026-01-31, without quotes")
        return value

    def whole(self, key: str) -> int:
        value = self._value(key)
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            self.refuse(key, "must be a whole number, 0 or more")
        return value

    def amount(self, key: str) -> Decimal:
        value = self._value(key)
        is_number = isinstance(value, int | Decimal) and not isinstance(value, bool)
        if not is_number or not Decimal(value).is_finite() or value < 0:
            self.refuse(key, "must be a number, 0 or more, such as 0.80")
        if value > AMOUNT_MAX:
            self.refuse(key, f"is more than {AMOUNT_MAX:,}. Is it in another unit, or are there too many zeros?")
        return Decimal(value)

    def _value(self, key: str) -> Any:
        if key not in self.values:
            self.refuse(key, "is missing")
        return self.values[key]

    def _key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
