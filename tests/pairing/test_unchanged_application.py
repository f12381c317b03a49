"""An application of the SDK with a pair in the place of its client, as `mypy --strict` and the namespaces see it."""

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusMessageBatch, ServiceBusSender
from azure.servicebus.aio import ServiceBusSender as AioServiceBusSender
from azure.servicebus.exceptions import MessageSizeExceededError

from examples import orders_application
from tests.pairing.conftest import Spaces
from tests.pairing.test_courier import Recorder, courier_of, send
from tests.pairing.trial import Trial, options
from tests.pairing.world import World
from twinbus.pairing import PairedNamespaceClient, PairedSender, PairingError, pair_namespaces
from twinbus.pairing.aio import PairedSender as AioPairedSender
from twinbus.pairing.aio import pair_namespaces as aio_pair_namespaces
from twinbus.pairing.rewriting.preflight import PairedMessageBatch
from twinbus.pairing.rewriting.transfer import annotated


def takes_stock(sender: ServiceBusSender, aio_sender: AioServiceBusSender, client: ServiceBusClient) -> None:
    """Nothing but annotations: the type checker reads them."""


def type_checks(sender: PairedSender, aio_sender: AioPairedSender, client: PairedNamespaceClient) -> None:
    """Never called. With `warn_unused_ignores`, an `ignore` that is not needed is an error."""
    takes_stock(sender, aio_sender, client)
    sender.send_messages([ServiceBusMessage("x")])
    sender.send_messages({"body": "x"})
    sender.send_messages(42)  # type: ignore[arg-type]
    sender.send_messages("x")  # type: ignore[arg-type]


def test_a_paired_sender_is_a_sender_of_the_sdk_and_a_pair_a_client() -> None:
    assert issubclass(PairedSender, ServiceBusSender)
    assert issubclass(AioPairedSender, AioServiceBusSender)
    assert issubclass(PairedNamespaceClient, ServiceBusClient)


def test_the_application_of_the_examples_runs_unchanged_with_a_pair(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired() as client:
        assert orders_application.run(client, trial.path, 3) == 6
        with pytest.raises(PairingError, match="is a pair already"):
            pair_namespaces(client, client.secondary, options())


async def test_aio_the_application_of_the_examples_runs_unchanged_with_a_pair(spaces: Spaces) -> None:
    path = spaces.primary.create_queue()
    strings = spaces.primary.connection_string, spaces.secondary.connection_string
    async with await aio_pair_namespaces(*strings, options()) as client:
        assert await orders_application.run_async(client, path, 3) == 3


def test_an_unknown_keyword_is_warned_of_as_the_sdk_does(spaces: Spaces) -> None:
    trial = Trial(spaces)
    with trial.paired() as client, trial.sender(client) as sender, pytest.warns(UserWarning, match="Unsupported"):
        sender.send_messages(ServiceBusMessage("x"), colour="red")


@pytest.mark.rule("B6")
@pytest.mark.parametrize("size", [10, 1_000])
def test_a_batch_holds_as_many_messages_as_the_stock_batch_and_its_rewritten_messages_are_split(size: int) -> None:
    stock, paired = ServiceBusMessageBatch(256 * 1024), PairedMessageBatch("orders", 256 * 1024, 256 * 1024)
    for batch in (stock, paired):
        with pytest.raises(MessageSizeExceededError):  # noqa: PT012
            while True:
                batch.add_message(ServiceBusMessage(b"x" * size, session_id="s"))
    assert len(stock) == len(paired)
    world = World(1)
    recorder = Recorder(world)
    send(courier_of(world, True), recorder, paired)
    assert len(recorder.parcels()) > 1
    assert sum(len(each) for each in recorder.parcels() if isinstance(each, ServiceBusMessageBatch)) + sum(
        not isinstance(each, ServiceBusMessageBatch) for each in recorder.parcels()
    ) == len(stock)
    assert annotated(paired.messages[0]).properties is not None
