"""Connection strings in files that only their owner can read: a plan refers to them instead of containing secrets.

Only for executors on the same machine. The folder is deleted when the job ends.
"""

import os
import tempfile
from pathlib import Path
from types import TracebackType

from twinbus.pipeline.connection_options import CONNECTION_STRING_FILE, ConnectionOptions


class KeyFolder:
    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="twinbus-")
        self._count = 0

    @property
    def path(self) -> Path:
        return Path(self._folder.name)

    def keep(self, connection_string: str) -> ConnectionOptions:
        """A reference to the connection string. Raises OptionError if it is not one."""
        self._count += 1
        file = self.path / f"connection-{self._count}"
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
            opened.write(connection_string)
        made = ConnectionOptions.from_options({CONNECTION_STRING_FILE: str(file)})
        made.resolve()
        return made

    def __enter__(self) -> "KeyFolder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._folder.cleanup()
