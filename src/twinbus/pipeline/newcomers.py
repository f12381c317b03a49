"""Entities that appear while a capture runs: paths that match now in, captures to be started out.

A pattern stands for the entities of a namespace at any time. So they are listed again every now and then, and what was
not there the last time is captured from then on, from its first message.
"""

import logging
from collections.abc import Callable, Iterable, Sequence

from azure.core.exceptions import AzureError

from twinbus.errors import MessagingError
from twinbus.model.paths import path_key
from twinbus.pipeline.capture import Capture

log = logging.getLogger(__name__)

LIST_EVERY_S = 60.0


class Newcomers:
    def __init__(
        self, captures: Iterable[Capture], list_paths: Callable[[], Sequence[str]], make: Callable[[str], Capture]
    ) -> None:
        """`list_paths` lists what matches now, and raises MessagingError or AzureError where it cannot."""
        self._captures = {path_key(capture.tally.entity): capture for capture in captures}
        self._listed = set(self._captures)
        self._list_paths = list_paths
        self._make = make
        self._list_at: float | None = None

    def __call__(self, now_s: float) -> list[Capture]:
        """Captures of entities that are new; one that was created again continues its own capture."""
        if self._list_at is None:
            self._list_at = now_s + LIST_EVERY_S
        if now_s < self._list_at:
            return []
        self._list_at = now_s + LIST_EVERY_S
        try:
            paths = {path_key(path): path for path in self._list_paths()}
        except (MessagingError, AzureError) as failure:
            log.warning("Cannot look for new entities now: %s", str(failure).partition("\n")[0])
            return []
        added = [self._capture(path) for key, path in paths.items() if key not in self._listed]
        self._listed = set(paths)
        return [capture for capture in added if capture is not None]

    def _capture(self, path: str) -> Capture | None:
        known = self._captures.get(path_key(path))
        if known is not None:
            known.revive()
            return None
        made = self._captures[path_key(path)] = self._make(path)
        return made
