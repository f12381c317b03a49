"""The portal beside the namespaces of `twinbus up`: a process that neither delays nor ends them.

Its socket listens before the process is there, so the address is known at once and the first page waits for nothing but itself.
"""

import contextlib
import subprocess
import sys
from pathlib import Path

from twinbus.errors import ArgumentError
from twinbus.portal.listening import address_of, listen
from twinbus.portal.settings import PortalSettings

LOG_NAME = "portal.log"
STOP_WAIT_S = 5.0


class PortalProcess:
    def __init__(self, data: Path, port: int) -> None:
        """Takes a free port if this one is in use."""
        settings = PortalSettings(port=port)
        try:
            self._listening = listen(settings)
        except ArgumentError:
            settings = PortalSettings(port=0)
            self._listening = listen(settings)
        self.address = address_of(settings, self._listening)
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns at once. If it cannot be started, the namespaces serve without it."""
        number = self._listening.fileno()
        command = [sys.executable, "-m", "twinbus", "portal", "--data", str(self._data), "--listening", str(number)]
        with contextlib.suppress(OSError), (self._data / LOG_NAME).open("wb") as log:
            # It ends when its input does: even if this process is killed. A session of its own keeps Ctrl-C from it.
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                pass_fds=(number,),
                start_new_session=True,
            )
        self._listening.close()

    def stop(self) -> None:
        self._listening.close()
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
