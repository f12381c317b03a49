"""The price sheet: plans with their tiers, as values. `price_sheet_file` reads them from TOML.

One sheet prices the estimate before and the report after (docs/contract.md, D5).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from twinbus.cost.tiers import ZERO, Tier
from twinbus.errors import ArgumentError

MILLION = 1_000_000
BYTES_PER_GB = 1024**3


@dataclass(frozen=True, slots=True)
class Plan:
    """What one namespace was bought as. All volumes are of a calendar month in UTC and of one namespace."""

    name: str
    base_per_month: Decimal
    operations: tuple[Tier, ...]
    bandwidth: tuple[Tier, ...]

    @property
    def list_price(self) -> Tier:
        """The first tier that costs something: what one operation more costs once nothing is included any longer."""
        return next((tier for tier in self.operations if tier.price), self.operations[-1])

    @property
    def included_operations(self) -> int:
        """Operations of a month before the first that costs something."""
        free = 0
        for tier in self.operations:
            if tier.price or tier.up_to is None:
                break
            free = tier.up_to
        return free


def operation_tiers(included: int, paid: tuple[tuple[int | None, Decimal], ...]) -> tuple[Tier, ...]:
    """Tiers from the included volume and (up to, price of a million) pairs."""
    free = (Tier(included, ZERO, MILLION),) if included else ()
    return free + tuple(Tier(up_to, per_million, MILLION) for up_to, per_million in paid)


def bandwidth_tiers(included_gb: Decimal, per_gb: Decimal) -> tuple[Tier, ...]:
    included = int(included_gb * BYTES_PER_GB)
    free = (Tier(included, ZERO, BYTES_PER_GB),) if included else ()
    return (*free, Tier(None, per_gb, BYTES_PER_GB))


@dataclass(frozen=True, slots=True)
class PriceSheet:
    name: str
    as_of: date
    currency: str
    is_example: bool
    default_plan: str
    plans: Mapping[str, Plan]

    def plan(self, name: str | None) -> Plan:
        """The plan of this name, the default one for None."""
        found = self.plans.get(name or self.default_plan)
        if found is None:
            raise ArgumentError(f"The price sheet '{self.name}' has no plan '{name}'. Use {' or '.join(self.plans)}.")
        return found

    @property
    def caption(self) -> str:
        """How reports name their prices; an example is never taken for a bill."""
        text = f"price sheet '{self.name}' of {self.as_of.isoformat()}, {self.currency}"
        return text + (" (an example, not today's prices)" if self.is_example else "")
