"""What sends is started again while its messages wait in the backlog of real namespaces: its sessions stay in order."""

import asyncio

import pytest

from tests.pairing import test_outages_aio as aio
from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import until
from tests.pairing.trial import Trial, is_in
from twinbus.pairing import Availability

SENDS = 4


def in_order(trial: Trial) -> list[str]:
    return sorted((name for name, _ in trial.primary.peek(trial.path)), key=lambda name: int(name[1:]))


@pytest.mark.rule("B8.7")
def test_a_session_stays_in_order_over_restarts_of_its_sender_in_mid_outage_and_after_the_heal(spaces: Spaces) -> None:
    trial = Trial(spaces)
    spaces.primary.kill()
    with trial.paired() as client, trial.sender(client) as sender:
        trial.fail_over(client, sender, timeout=10)
        assert all(trial.send(sender, session_id="a") for _ in range(SENDS))
    for _ in range(3):
        with trial.paired() as client, trial.sender(client) as sender:
            assert all(trial.send(sender, session_id="a") for _ in range(SENDS))
            assert is_in(client, Availability.CATCHING_UP)()
    spaces.primary.revive()
    with trial.paired() as client, trial.sender(client) as sender:
        assert trial.send(sender, session_id="a")
        waiting = trial.waiting()
        assert trial.send(sender, session_id="b")
        assert trial.send(sender)
        assert trial.waiting() == waiting, "nothing else goes through the backlog"
        with trial.paired(enable_syphon=True):
            until(lambda: not trial.waiting())
        until(is_in(client, Availability.HEALTHY))
        assert trial.send(sender, session_id="a")
    trial.audit()
    own = [name for name, _ in trial.primary.peek(trial.path) if name in {*waiting, in_order(trial)[-1]}]
    assert own == sorted(own, key=lambda name: int(name[1:]))


@pytest.mark.rule("B8.7")
async def test_aio_a_session_goes_on_behind_its_own_messages_after_a_restart(spaces: Spaces) -> None:
    trial = Trial(spaces)
    spaces.primary.kill()
    async with aio.paired(spaces) as client, client.get_queue_sender(trial.path) as sender:
        assert not await aio.send(trial, sender)
        await aio.until(aio.is_in(client, Availability.FAILED_OVER))
        assert await aio.send(trial, sender, session_id="a")
    spaces.primary.revive()
    async with aio.paired(spaces) as client, client.get_queue_sender(trial.path) as sender:
        assert await aio.send(trial, sender, session_id="a")
        assert await aio.send(trial, sender, session_id="b")
        assert await asyncio.to_thread(trial.waiting) == ["m1", "m2"]
    await asyncio.to_thread(trial.bring_home)
    assert (await asyncio.to_thread(trial.audit)).delivered == ["m3", "m1", "m2"]


@pytest.mark.rule("B2.1", "B8.7")
def test_a_pair_that_begins_with_an_empty_backlog_sends_its_sessions_straight(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired(primary_name="nobody-else") as client, trial.sender(client) as sender:
        assert sender._watch.is_straight
        assert trial.send(sender, session_id="a")
    assert trial.events == []
