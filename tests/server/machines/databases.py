"""PostgreSQL as it is run for real: servers in pairs, a primary and its synchronous standby, each at an address of its own."""

from collections.abc import Sequence

from tests.postgres_server import PostgresServer

STANDBY = "standby"
PORT = 5432
SETTINGS = {"wal_keep_size": "16MB", "max_wal_size": "64MB", "min_wal_size": "32MB", "wal_sender_timeout": "2s"}


class ReplicatedDatabase:
    """Either server may be the primary; clients name both."""

    def __init__(self, addresses: Sequence[str], trusted: str) -> None:
        """`trusted`: the network that may connect."""
        self._addresses = addresses
        self._servers = [PostgresServer(settings={**SETTINGS, "listen_addresses": each}) for each in addresses]
        first, second = self._servers
        first.create()
        first.trust(trusted)
        # First, so that the standby has it too when it is promoted.
        first.configure(synchronous_standby_names=STANDBY)
        second.follow(first, STANDBY)

    @property
    def dsn(self) -> str:
        return f"postgresql://bus@{','.join(f'{each}:{PORT}' for each in self._addresses)}/bus"

    def fail_over(self) -> None:
        """The primary dies, its standby is promoted, and a new standby takes its place."""
        old, new = self._servers
        old.kill()
        new.promote()
        self._servers.reverse()
        old.clear()
        old.follow(new, STANDBY)

    def remove(self) -> None:
        for server in self._servers:
            server.remove()
