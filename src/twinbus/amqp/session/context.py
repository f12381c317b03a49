"""What the sessions and links of one connection share."""

from dataclasses import dataclass, field

from twinbus.amqp.connection.settings import ConnectionSettings
from twinbus.amqp.link.inflow import Inflow
from twinbus.amqp.link.reassembly import ReassemblyBudget
from twinbus.amqp.link.reports import Reports
from twinbus.amqp.session.outbox import Outbox


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
