"""The paired client of a rehearsal, as an application has it: it can be restarted, and then knows nothing but what it finds."""

import threading
from collections.abc import Callable

from twinbus.pairing import PairedNamespaceClient, PairingError

RETRY_S = 0.5


class PairedApplication:
    """`pair` pairs the two namespaces. Only one thread restarts or ends it; any thread may use `client` meanwhile."""

    def __init__(self, pair: Callable[[], PairedNamespaceClient]) -> None:
        self._pair = pair
        self._ending = threading.Event()
        self.client = pair()

    def restart(self) -> PairedNamespaceClient:
        """As an application does that its operator keeps alive: again and again, while the secondary cannot be reached."""
        self.client.close()
        while True:
            try:
                self.client = self._pair()
            except PairingError:
                if self._ending.wait(RETRY_S):
                    raise
            else:
                return self.client

    def stop(self) -> None:
        """A restart that is under way ends."""
        self._ending.set()
