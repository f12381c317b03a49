"""Pairing with a secondary that hangs: the application has its primary, and is told what it does not have."""

import time
from datetime import timedelta
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.pairing.conftest import Spaces
from tests.pairing.namespaces import until
from tests.pairing.relay_thread import RelayThread
from tests.pairing.test_outages_aio import until as aio_until
from tests.pairing.trial import Trial, options
from twinbus.pairing import EventKind, PairedNamespaceClient, PairingError, PairingMetrics, pair_namespaces
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces

TIMEOUT = timedelta(seconds=1)
LATE_S = 1.0


def hung(spaces: Spaces, relay: RelayThread) -> str:
    relay.hold()
    return spaces.secondary.connection_string_with(f"Endpoint=sb://127.0.0.1:{relay.port}")


def pair(spaces: Spaces, secondary: str, trial: Trial, **chosen: Any) -> PairedNamespaceClient:
    return pair_namespaces(
        spaces.primary.connection_string,
        secondary,
        options(pairing_timeout=TIMEOUT, on_event=trial.events.append, primary_name=trial.primary_name, **chosen),
        retry_total=0,
    )


@pytest.mark.rule("B1")
def test_a_hung_secondary_does_not_hold_pairing_past_its_deadline(spaces: Spaces) -> None:
    with RelayThread(spaces.secondary.amqp_port) as relay:
        started = time.monotonic()
        with pytest.raises(PairingError, match="pairing_timeout"):
            pair(spaces, hung(spaces, relay), Trial(spaces))
        assert time.monotonic() - started < TIMEOUT.total_seconds() + LATE_S


@pytest.mark.rule("B1")
async def test_aio_a_hung_secondary_does_not_hold_pairing_past_its_deadline(spaces: Spaces) -> None:
    with RelayThread(spaces.secondary.amqp_port) as relay:
        started = time.monotonic()
        with pytest.raises(PairingError, match="pairing_timeout"):
            await aio_pair_namespaces(
                spaces.primary.connection_string, hung(spaces, relay), options(pairing_timeout=TIMEOUT)
            )
        assert time.monotonic() - started < TIMEOUT.total_seconds() + LATE_S


@pytest.mark.rule("B1", "B11")
def test_without_its_backlog_a_pair_is_unprotected_sends_says_so_and_finishes_in_the_background(
    spaces: Spaces,
) -> None:
    trial, registry = Trial(spaces), CollectorRegistry()
    metrics = PairingMetrics(registry)

    def protection() -> float | None:
        for event in trial.events:
            metrics.observe(event)
        return registry.get_sample_value("twinbus_pairing_protected", {"pair": ""})

    with (
        RelayThread(spaces.secondary.amqp_port) as relay,
        pair(spaces, hung(spaces, relay), trial, require_backlog=False, failover_interval=timedelta(0)) as client,
        trial.sender(client) as sender,
    ):
        state = client.state()
        assert not state.is_protected
        assert isinstance(state.backlog_error, PairingError)
        assert client.backlog_queues == ()
        assert trial.kinds() == [EventKind.UNPROTECTED]
        assert protection() == 0
        assert trial.send(sender)
        relay.pass_on()
        until(lambda: client.state().is_protected)
        assert len(client.backlog_queues) == 2
        assert EventKind.PROTECTED in trial.kinds()
        assert protection() == 1
        spaces.primary.kill()
        assert trial.send(sender, timeout=10)
    assert len(trial.waiting()) == 1


@pytest.mark.rule("B1")
async def test_aio_without_its_backlog_a_pair_is_unprotected_and_finishes_in_the_background(spaces: Spaces) -> None:
    with RelayThread(spaces.secondary.amqp_port) as relay:
        client = await aio_pair_namespaces(
            spaces.primary.connection_string,
            hung(spaces, relay),
            options(pairing_timeout=TIMEOUT, require_backlog=False),
        )
        async with client:
            assert not client.state().is_protected
            relay.pass_on()
            await aio_until(lambda: client.state().is_protected)


@pytest.mark.rule("B1")
def test_an_unprotected_pair_raises_what_the_primary_raises(spaces: Spaces) -> None:
    """There is nowhere else to go, and the error of a missing backlog would hide the outage."""
    trial = Trial(spaces)
    with (
        RelayThread(spaces.secondary.amqp_port) as relay,
        RelayThread(spaces.primary.amqp_port) as primary_relay,
    ):
        client = pair_namespaces(
            spaces.primary.connection_string_with(f"Endpoint=sb://127.0.0.1:{primary_relay.port}"),
            hung(spaces, relay),
            options(pairing_timeout=timedelta(seconds=0.3), require_backlog=False, failover_interval=timedelta(0)),
            retry_total=0,
        )
        with client, trial.sender(client) as sender:
            primary_relay.refuse()
            for _ in range(2):
                assert not trial.send(sender, timeout=2)
                assert trial.last_failure is not None
                assert trial.last_failure.is_outage
