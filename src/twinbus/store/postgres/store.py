"""A durable store in PostgreSQL."""

from twinbus.store.durable import DurableStore
from twinbus.store.layers.checkpoint_thread import StartTask, start_thread
from twinbus.store.postgres.lease import NO_RENEWAL, LeaseRenewal
from twinbus.store.postgres.medium import PostgresMedium
from twinbus.store.postgres.place import Owner, PostgresPlace
from twinbus.store.store_limits import StoreLimits


class PostgresStore(DurableStore):
    def __init__(
        self,
        place: PostgresPlace,
        owner: Owner,
        limits: StoreLimits | None = None,
        start_task: StartTask = start_thread,
        renewal: LeaseRenewal = NO_RENEWAL,
    ) -> None:
        super().__init__(PostgresMedium(place, owner, renewal), limits, start_task)
