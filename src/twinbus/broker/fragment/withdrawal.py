"""Messages that leave their lanes without being handed over: rows of one fragment that nobody holds in, lanes out."""

from collections.abc import Sequence

from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.lane import Lane
from twinbus.model.wire_names import MessageState
from twinbus.store.changes import StoredMessage


def withdraw(fragment: Fragment, rows: Sequence[StoredMessage]) -> list[Lane]:
    """Take the active ones out of the lanes they wait in, and return those lanes: announce them once the change of the
    rows has been asked for, so that a scan for more comes behind it."""
    lanes: dict[int, Lane] = {}
    for row in rows:
        if row.state is MessageState.ACTIVE:
            lane = fragment.lane_of(row)
            lane.remove(row.sequence_number)
            lanes[id(lane)] = lane
    return list(lanes.values())
