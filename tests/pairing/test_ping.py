from datetime import timedelta

import pytest

from twinbus.model.pairing_limits import PARTNER_CLOSE_GRACE, PING_TIMEOUT
from twinbus.pairing.attendant import ping_message


@pytest.mark.rule("B7")
def test_a_ping_is_empty_short_lived_and_for_queues_with_sessions_too() -> None:
    ping = ping_message("any")
    assert b"".join(ping.body) == b""
    assert ping.content_type == "application/vnd.ms-servicebus-ping"
    assert ping.time_to_live == timedelta(seconds=1)
    assert ping.session_id == "any"


@pytest.mark.rule("B7", "B9")
def test_pings_and_partners_get_the_time_that_the_contract_gives_them() -> None:
    assert timedelta(minutes=2) == PING_TIMEOUT
    assert timedelta(seconds=5) == PARTNER_CLOSE_GRACE
