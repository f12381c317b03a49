"""An application that keeps sending while its namespace is down, and shows what happens.

Start two namespaces, each in a terminal of its own, and run this with the two connection strings they print:

    twinbus serve primary --queue orders
    twinbus serve secondary --amqp-port 5673 --http-port 5301
    python examples/paired_sender.py PRIMARY SECONDARY

Kill the primary (`kill -9`, or Ctrl-C in its terminal) and watch sends fail, fail over and succeed; start it again and
watch the backlog come home. What the syphon tried to bring home while the primary was down is locked for up to a
minute, and moves after that.
"""

import argparse
import contextlib
import itertools
import time
from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from twinbus.pairing import PairingEvent, SendAvailabilityPairedNamespaceOptions, pair_namespaces


def show(event: PairingEvent) -> None:
    where = event.path or event.queue or ""
    why = f" ({event.error})" if event.error is not None else ""
    print(f"    {event.kind.value} {where}{why}")


def main() -> None:
    arguments = argparse.ArgumentParser(description="Send a message a second through a pair of namespaces.")
    arguments.add_argument("primary", help="connection string")
    arguments.add_argument("secondary", help="connection string")
    arguments.add_argument("--queue", default="orders")
    arguments.add_argument("--count", type=int, help="stop after this many messages")
    given = arguments.parse_args()

    options = SendAvailabilityPairedNamespaceOptions(
        failover_interval=timedelta(seconds=10),
        ping_primary_interval=timedelta(seconds=5),
        enable_syphon=True,
        on_event=show,
    )
    with (
        pair_namespaces(given.primary, given.secondary, options, retry_total=1) as client,
        client.get_queue_sender(given.queue) as sender,
        contextlib.suppress(KeyboardInterrupt),
    ):
        for number in itertools.islice(itertools.count(1), given.count):
            try:
                sender.send_messages(ServiceBusMessage(f"order {number}", message_id=str(number)), timeout=5)
            except ServiceBusError as error:
                print(f"order {number} was not accepted: {error}")
            else:
                print(f"order {number} accepted, {client.state().entities[0].availability.value}")
            time.sleep(1)


if __name__ == "__main__":
    main()
