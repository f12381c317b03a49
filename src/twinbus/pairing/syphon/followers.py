"""Which messages of a pass follow others that are still in another backlog queue, and so have to wait (see `pairing/rewriting/stages.py`)."""

from collections.abc import Mapping

from twinbus.clock import Millis
from twinbus.model.paths import path_key
from twinbus.model.session_key import session_key
from twinbus.pairing.deciding.survey import Survey
from twinbus.pairing.rewriting.stages import Stage
from twinbus.pairing.syphon.destinations import Destination, Group


def parted(
    path: str, group: Group, surveys: Mapping[int, Survey | None], destination: Destination, received_at: Millis
) -> tuple[Group, Group]:
    """Those that may go, and those that wait, which the destination remembers. `surveys` has every queue that they follow; None for
    one that could not be looked into."""
    going: Group = []
    waiting: Group = []
    for taken, transfer in group:
        session = "" if transfer.session_id is None else session_key(transfer.session_id)
        is_behind = destination.is_behind(session, taken.sequence_number, received_at)
        if is_behind or not _is_clear(path_key(path), session, transfer.stage, taken.enqueued_at, surveys):
            destination.follow(session, taken.sequence_number, taken.locked_until)
            waiting.append((taken, transfer))
        else:
            going.append((taken, transfer))
    return going, waiting


def _is_clear(
    path: str, session: str, stage: Stage | None, enqueued_at: Millis, surveys: Mapping[int, Survey | None]
) -> bool:
    if stage is None:
        return True
    found = [surveys[index] for index in stage.follows]
    return all(survey is not None and survey.is_clear(path, session, stage.number, enqueued_at) for survey in found)
