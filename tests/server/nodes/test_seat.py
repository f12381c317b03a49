"""What one of several nodes is told of the settings of its namespace."""

from pathlib import Path

import pytest

from twinbus.model.message_limits import MESSAGE_SIZE_CEILING
from twinbus.server.listening.admission import SharedLimits
from twinbus.server.nodes.seat import settings_of_one
from twinbus.server.server_settings import ServerSettings

SETTINGS = ServerSettings("test", Path("unused"), exact_operations_max=1_000)


@pytest.mark.parametrize("count", [1, 2, 3, 16])
def test_limits_of_all_nodes_together_are_those_of_the_namespace(count: int) -> None:
    """But for rounding, so that nobody has none."""
    whole, one = SETTINGS.shared_limits, settings_of_one(SETTINGS, count).shared_limits
    assert 0 <= one.http_count_max * count - whole.http_count_max < count
    assert 0 <= one.undecided_count_max * count - whole.undecided_count_max < count
    assert 0 <= settings_of_one(SETTINGS, count).exact_operations_max * count - 1_000 < count


def test_one_node_has_all_of_them() -> None:
    assert settings_of_one(SETTINGS, 1).shared_limits == SETTINGS.shared_limits


def test_every_node_has_room_for_one_of_the_largest_messages() -> None:
    one = settings_of_one(SETTINGS, 16).shared_limits
    assert one.incomplete_size_max == one.unread_size_max == MESSAGE_SIZE_CEILING


def test_what_was_set_lower_stays_lower() -> None:
    limits = SharedLimits(incomplete_size_max=1_000, unread_size_max=2_000)
    one = settings_of_one(ServerSettings("test", Path("unused"), shared_limits=limits), 4).shared_limits
    assert (one.incomplete_size_max, one.unread_size_max) == (1_000, 2_000)


def test_nothing_logged_one_by_one_stays_nothing() -> None:
    assert settings_of_one(ServerSettings("test", Path("unused"), exact_operations_max=0), 4).exact_operations_max == 0
