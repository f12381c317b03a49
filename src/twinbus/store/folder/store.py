"""A durable store in a folder."""

from pathlib import Path

from twinbus.store.durable import DurableStore
from twinbus.store.folder.medium import FolderMedium
from twinbus.store.layers.checkpoint_thread import StartTask, start_thread
from twinbus.store.store_limits import StoreLimits


class FolderStore(DurableStore):
    def __init__(
        self,
        folder: Path,
        limits: StoreLimits | None = None,
        start_task: StartTask = start_thread,
        witness: Path | None = None,
        *,
        is_taken_back: bool = False,
    ) -> None:
        super().__init__(FolderMedium(folder, witness, is_taken_back=is_taken_back), limits, start_task)
