"""What the sessions and links of one connection share."""

from dataclasses import dataclass, field

from twinbus.amqp.inflow import Inflow
from twinbus.amqp.outbox import Outbox
from twinbus.amqp.reassembly import ReassemblyBudget
from twinbus.amqp.reports import Reports
from twinbus.amqp.settings import ConnectionSettings


@dataclass(slots=True)
class ConnectionContext:
    settings: ConnectionSettings
    inflow: Inflow
    reassembly: ReassemblyBudget
    outbox: Outbox = field(default_factory=Outbox)
    reports: Reports = field(default_factory=Reports)
    link_count: int = 0

    @classmethod
    def of(cls, settings: ConnectionSettings) -> "ConnectionContext":
        return cls(
            settings,
            Inflow(settings.inflow_count_max, settings.inflow_size_max),
            ReassemblyBudget(settings.reassembly_size_max),
        )
