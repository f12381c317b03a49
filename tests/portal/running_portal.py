"""A portal on a thread of the test's process, on a free port of loopback."""

import asyncio
import threading
from collections.abc import Sequence
from types import TracebackType

import httpx

from twinbus.portal.listening import address_of, listen
from twinbus.portal.namespaces.directory import Directory, KnownNamespace
from twinbus.portal.serving import serve_until
from twinbus.portal.settings import PortalSettings
from twinbus.testing.local_namespace import LocalNamespace

WAIT_S = 20.0


def known(namespace: LocalNamespace) -> KnownNamespace:
    return KnownNamespace(namespace.name, namespace.connection_string, namespace.endpoint, (), is_local=True)


class RunningPortal:
    def __init__(self, namespaces: Sequence[KnownNamespace], settings: PortalSettings | None = None) -> None:
        self._settings = settings or PortalSettings(port=0)
        self._namespaces = namespaces
        self._listening = listen(self._settings)
        self.address = address_of(self._settings, self._listening)
        self._stop: asyncio.Event | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()), daemon=True)
        self._thread.start()
        assert self._is_ready.wait(WAIT_S)

    async def _run(self) -> None:
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        self._is_ready.set()
        # Found, not given: so it is local, as with the command.
        directory = Directory([], lambda: self._namespaces)
        await serve_until(self._stop, self._settings, directory, self._listening)

    def client(self) -> httpx.Client:
        """As the portal's own pages ask."""
        return httpx.Client(
            base_url=self.address, headers={"Origin": self.address}, follow_redirects=True, timeout=WAIT_S
        )

    def __enter__(self) -> "RunningPortal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._loop is not None
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()
