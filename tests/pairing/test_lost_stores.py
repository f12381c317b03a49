"""A messaging store of a real primary is down: what needs it fails over, the rest does not notice."""

import asyncio
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError, ServiceBusServerBusyError

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import until
from tests.pairing.test_fragments import key_in
from tests.pairing.trial import Trial, is_in, options
from twinbus.client.async_administration import async_administration_client
from twinbus.pairing import Availability, EventKind, classify
from twinbus.pairing.aio import pair_namespaces

FRAGMENTS = range(16)


@pytest.mark.rule("A4", "B4")
def test_a_dead_store_is_an_outage_and_not_throttling(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    with spaces.primary.client() as client, client.get_queue_sender(path) as sender:
        sender.send_messages(ServiceBusMessage("x"))
        with spaces.primary.stores_down(), pytest.raises(ServiceBusError) as caught:
            sender.send_messages(ServiceBusMessage("x"))
    assert not isinstance(caught.value, ServiceBusServerBusyError)
    assert classify(caught.value).is_outage
    assert "unavailable" in str(caught.value)


@pytest.mark.rule("B3", "B4")
def test_an_ordinary_entity_in_a_dead_store_fails_over_with_the_send_that_meets_it(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired(failover_interval=timedelta(0)) as client:
        sender = trial.sender(client)
        assert trial.send(sender)
        with spaces.primary.stores_down():
            assert trial.send(sender)
            assert len(trial.waiting()) == 1
        until(is_in(client, Availability.HEALTHY))
    trial.bring_home()
    trial.audit()


@pytest.mark.rule("B8")
def test_of_a_partitioned_entity_only_what_needs_the_dead_store_goes_to_the_backlog(spaces: Spaces) -> None:
    trial = Trial(spaces, enable_partitioning=True)
    with trial.paired(failover_interval=timedelta(0)) as client:
        sender = trial.sender(client)
        with spaces.primary.stores_down(1):
            for fragment in FRAGMENTS:
                assert trial.send(sender, partition_key=key_in(fragment))
                assert trial.send(sender)
            (state,) = client.state().entities
            lost = {each.fragment for each in state.fragments}
            assert state.availability is Availability.HEALTHY
            assert len(lost) == len(FRAGMENTS) // 2
            assert len(trial.waiting()) == len(lost)
        until(lambda: not client.state().entities[0].fragments)
    recovered = {event.fragment for event in trial.events if event.kind is EventKind.RECOVERED}
    assert recovered == lost
    trial.bring_home()
    trial.audit()


@pytest.mark.rule("B8")
def test_a_key_that_may_not_manage_needs_to_be_told_how_many_fragments_there_are(spaces: Spaces) -> None:
    trial = Trial(spaces, enable_partitioning=True)
    key = spaces.primary.make_key("sender")
    for counts, expected in ((None, Availability.FAILED_OVER), ({trial.path: 16}, Availability.HEALTHY)):
        with trial.paired(key, failover_interval=timedelta(0), fragment_counts=counts) as client:
            sender = trial.sender(client)
            with spaces.primary.stores_down(1):
                for fragment in FRAGMENTS:
                    assert trial.send(sender, partition_key=key_in(fragment))
                assert client.state().entities[0].availability is expected
    trial.bring_home()
    trial.audit()


@pytest.mark.rule("B8")
async def test_tasks_fail_over_a_fragment_too(spaces: Spaces) -> None:
    path = spaces.primary.create_queue(enable_partitioning=True)
    endpoint = f"http://127.0.0.1:{spaces.secondary.http_port}"
    async with async_administration_client(spaces.secondary.connection_string, endpoint) as administration:
        pairing = pair_namespaces(
            spaces.primary.connection_string,
            spaces.secondary.connection_string,
            options(failover_interval=timedelta(0)),
            secondary_administration=administration,
            retry_total=0,
        )
        async with await pairing as client:
            sender = client.get_queue_sender(path)
            with spaces.primary.stores_down(0):
                messages = [ServiceBusMessage("x", partition_key=key_in(each)) for each in FRAGMENTS]
                await asyncio.gather(*(sender.send_messages(each) for each in messages))
                (state,) = client.state().entities
                assert state.availability is Availability.HEALTHY
                assert len(state.fragments) == len(FRAGMENTS) // 2
            await asyncio.to_thread(until, lambda: not client.state().entities[0].fragments)
