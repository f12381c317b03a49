"""Making a pair: what it creates on a real secondary, and when it refuses."""

import threading
import uuid
from datetime import timedelta
from typing import Any

import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.servicebus import ServiceBusClient

from tests.pairing.conftest import Spaces
from tests.pairing.fast_clock import FastClock
from tests.pairing.namespaces import CLIENT_OPTIONS, until
from twinbus.pairing import (
    EventKind,
    PairedNamespaceClient,
    PairFaulted,
    PairingError,
    PairingEvent,
    Partner,
    SendAvailabilityPairedNamespaceOptions,
    pair_namespaces,
)
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces
from twinbus.pairing.backlog.provision import Backlog
from twinbus.pairing.backlog.queues import FOREVER
from twinbus.pairing.new_pair import credential_of
from twinbus.pairing.syphon.threads import ThreadedSyphon


def options(**chosen: Any) -> SendAvailabilityPairedNamespaceOptions:
    """A primary of its own name for each test, so that its backlog queues are its own too."""
    return SendAvailabilityPairedNamespaceOptions(
        **{"primary_name": f"p{uuid.uuid4().hex[:8]}", "backlog_queue_count": 2, **chosen}
    )


def pair(spaces: Spaces, chosen: SendAvailabilityPairedNamespaceOptions) -> PairedNamespaceClient:
    with spaces.secondary.administration() as administration:
        return pair_namespaces(
            spaces.primary.connection_string,
            spaces.secondary.connection_string,
            chosen,
            secondary_administration=administration,
            **CLIENT_OPTIONS,
        )


@pytest.mark.rule("B1.5")
def test_backlog_queues_are_created_with_the_description_of_the_contract(spaces: Spaces) -> None:
    chosen = options()
    with pair(spaces, chosen) as client:
        assert client.backlog_queues == tuple(f"{chosen.primary_name}/x-servicebus-transfer/{i}" for i in range(2))
    with spaces.secondary.administration() as administration:
        queue = administration.get_queue(client.backlog_queues[1])
    assert queue.max_size_in_megabytes == 5120
    assert queue.max_delivery_count == 2147483647
    assert queue.lock_duration == timedelta(minutes=1)
    assert queue.dead_lettering_on_message_expiration
    assert queue.enable_batched_operations
    assert not queue.requires_session
    assert not queue.requires_duplicate_detection
    assert not queue.enable_partitioning
    for endless in (queue.default_message_time_to_live, queue.auto_delete_on_idle):
        assert isinstance(endless, timedelta)
        assert endless.days == int(FOREVER[1:].split("D")[0])


@pytest.mark.rule("B1.6")
def test_existing_backlog_queues_are_used_as_they_are_and_extra_ones_left_alone(spaces: Spaces) -> None:
    chosen = options()
    with spaces.secondary.administration() as administration:
        for index in (1, 5):
            administration.create_queue(f"{chosen.primary_name}/x-servicebus-transfer/{index}", max_delivery_count=7)
    with pair(spaces, chosen) as client:
        assert [path[-1] for path in client.backlog_queues] == ["0", "1"]
    with spaces.secondary.administration() as administration:
        assert administration.get_queue(client.backlog_queues[1]).max_delivery_count == 7


@pytest.mark.rule("B1.2")
def test_a_namespace_cannot_be_paired_with_itself(spaces: Spaces) -> None:
    with pytest.raises(PairingError, match="itself"):
        pair_namespaces(spaces.primary.connection_string, spaces.primary.connection_string)


@pytest.mark.rule("B1.8")
def test_pairing_without_the_manage_right_says_so(spaces: Spaces) -> None:
    head, _, tail = spaces.secondary.connection_string.partition("SharedAccessKey=")
    stranger = f"{head}SharedAccessKey=d3Jvbmc=;{tail.partition(';')[2]}"
    with pytest.raises(PairingError, match="Manage right"):
        pair_namespaces(
            spaces.primary.connection_string,
            stranger,
            secondary_administration=spaces.secondary.administration_with(stranger),
        )


@pytest.mark.rule("B1.3")
def test_a_client_is_paired_once_and_a_secondary_is_not_itself_paired(spaces: Spaces) -> None:
    primary, secondary, third = spaces.primary.client(), spaces.secondary.client(), spaces.primary.client()
    chosen = options()
    administration = spaces.secondary.administration()
    with pair_namespaces(primary, secondary, chosen, secondary_administration=administration):
        for one, other, reason in (
            (primary, spaces.secondary.client(), "paired already"),
            (secondary, third, "secondary of a pair"),
            (spaces.secondary.client(), primary, "itself paired"),
        ):
            with pytest.raises(PairingError, match=reason):
                pair_namespaces(one, other, chosen, secondary_administration=administration)
    pair_namespaces(primary, secondary, chosen, secondary_administration=administration).close()


@pytest.mark.rule("B1")
def test_a_local_secondary_given_as_a_client_needs_its_administration(spaces: Spaces) -> None:
    with pytest.raises(PairingError, match="secondary_administration"):
        pair_namespaces(spaces.primary.client(), spaces.secondary.client(), options())


@pytest.mark.rule("B1")
@pytest.mark.parametrize("credential", [AzureNamedKeyCredential("k", "c2VjcmV0"), AzureSasCredential("s")], ids=type)
def test_a_secondary_with_a_credential_that_its_management_does_not_take_needs_its_administration(
    credential: AzureNamedKeyCredential | AzureSasCredential,
) -> None:
    with (
        ServiceBusClient("contoso.servicebus.windows.net", credential) as client,
        pytest.raises(PairingError, match="secondary_administration"),
    ):
        credential_of(client)


def with_syphon(spaces: Spaces) -> tuple[PairedNamespaceClient, list[PairingEvent]]:
    events: list[PairingEvent] = []
    chosen = options(enable_syphon=True, backlog_queue_count=1, on_event=events.append)
    primary, secondary, clock = spaces.primary.client(), spaces.secondary.client(), FastClock()
    path = spaces.secondary.create_queue()
    syphon = ThreadedSyphon(primary, secondary, [path], chosen, clock)
    client = PairedNamespaceClient(primary, secondary, chosen, Backlog({0: path}), clock, syphon)
    return client, events


@pytest.mark.rule("B9.2")
def test_a_partner_closed_alone_faults_the_pair_after_the_grace(spaces: Spaces) -> None:
    client, events = with_syphon(spaces)
    sender = client.get_queue_sender("orders")
    client.secondary.close()
    until(lambda: any(event.kind is EventKind.FAULTED for event in events))
    with pytest.raises(PairFaulted, match="primary of the pair is faulted"):
        sender.send_messages({"body": b"x"})
    until(lambda: not any(thread.name == "twinbus-pump" for thread in threading.enumerate()))
    client.close()


@pytest.mark.rule("B9")
def test_a_faulted_partner_takes_the_other_with_it_at_once(spaces: Spaces) -> None:
    client, events = with_syphon(spaces)
    client.fault(Partner.PRIMARY, ConnectionError("broken"))
    assert [event.kind for event in events].count(EventKind.FAULTED) == 2
    with pytest.raises(PairFaulted):
        client.get_queue_sender("orders")
    client.close()


@pytest.mark.rule("B1.2")
def test_a_namespace_under_two_names_is_one(spaces: Spaces) -> None:
    here = spaces.primary.connection_string
    with pytest.raises(PairingError, match="cannot be paired with itself"):
        pair_namespaces(here, here.replace("127.0.0.1", "localhost"), options())


@pytest.mark.rule("B1.2")
async def test_aio_a_namespace_under_two_names_is_one(spaces: Spaces) -> None:
    here = spaces.primary.connection_string
    with pytest.raises(PairingError, match="cannot be paired with itself"):
        await aio_pair_namespaces(here, here.replace("127.0.0.1", "localhost"), options())
