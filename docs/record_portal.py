"""Takes the pictures of docs/how-to/portal.md and the README: a real portal on two real namespaces, in a real Chromium.

    PYTHONPATH=. python docs/record_portal.py         needs Chromium

Messages are sent, dead-lettered and received by the official SDK; a store is switched off for the picture of the heat map.
"""

import json
import random
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.portal.chromium import Chromium, Tab
from tests.portal.running_portal import RunningPortal, known
from twinbus.testing.local_namespace import LocalNamespace

FOLDER = Path(__file__).parent / "portal"
WIDE, NARROW = (1180, 740), (390, 844)
CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara")


def fill(namespace: LocalNamespace) -> None:
    draw = random.Random(7)
    namespace.create_queue("orders", enable_partitioning=True)
    namespace.create_queue("invoices", requires_session=True, enable_partitioning=True)
    namespace.create_queue("emails")
    namespace.create_topic("events", "audit", "billing", enable_partitioning=True)
    with namespace.client() as client:
        with client.get_queue_sender("orders") as sender:
            for number in range(500):
                order = {"order": number, "customer": draw.choice(CUSTOMERS), "total": round(draw.random() * 100, 2)}
                properties: Any = {"region": draw.choice(("north", "south")), "attempt": draw.randint(1, 9)}
                key = f"customer-{int(draw.gauss(20, 9))}"
                message = ServiceBusMessage(
                    json.dumps(order),
                    message_id=f"order-{number}",
                    application_properties=properties,
                    partition_key=key,
                )
                sender.send_messages(message)
        with client.get_topic_sender("events") as sender:
            for number in range(24):
                colours: Any = {"colour": draw.choice(("red", "blue")), "n": number}
                sender.send_messages(ServiceBusMessage(json.dumps({"event": number}), application_properties=colours))
        dead_letter(client)


def dead_letter(client: ServiceBusClient) -> None:
    reasons = (
        ("ValidationFailed", "total is negative"),
        ("CustomerUnknown", "no such customer"),
        ("Timeout", "the warehouse did not answer"),
    )
    with client.get_queue_receiver("orders", max_wait_time=5) as receiver:
        for index, message in enumerate(receiver.receive_messages(max_message_count=90, max_wait_time=5)):
            reason, text = reasons[0 if index % 2 else 1 if index % 3 else 2]
            receiver.dead_letter_message(message, reason=reason, error_description=text)


def traffic(namespace: LocalNamespace, stop: threading.Event) -> None:
    """Something to see in the plots."""
    draw = random.Random(1)
    with (
        namespace.client() as client,
        client.get_queue_sender("emails") as sender,
        client.get_queue_receiver("emails", receive_mode="receiveanddelete") as receiver,
    ):
        while not stop.is_set():
            sender.send_messages([ServiceBusMessage("hello") for _ in range(draw.randint(5, 40))])
            receiver.receive_messages(max_message_count=draw.randint(5, 40), max_wait_time=1)
            stop.wait(0.2)


def take(tab: Tab, address: str, name: str, size: tuple[int, int], *, wait: str = "true", dark: bool = False) -> None:
    tab.resize(*size)
    tab.dark(dark)
    tab.open(address)
    tab.wait(wait)
    time.sleep(2.5)
    tab.picture(FOLDER / f"{name}.png")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        with (
            LocalNamespace(data / "a", "primary", store_count=4) as primary,
            LocalNamespace(data / "b", "secondary", store_count=4) as secondary,
            RunningPortal([known(primary), known(secondary)]) as portal,
            Chromium(data / "chromium") as chromium,
        ):
            fill(primary)
            stop = threading.Event()
            busy = threading.Thread(target=traffic, args=(primary, stop))
            busy.start()
            try:
                shoot(chromium.tab(), portal.address, primary)
            finally:
                stop.set()
                busy.join()


def shoot(tab: Tab, address: str, primary: LocalNamespace) -> None:
    tab.open(address)
    time.sleep(40)
    take(tab, f"{address}/", "overview", WIDE)
    take(tab, f"{address}/ns/primary/messages?path=orders&sql=region%20%3D%20%27north%27", "messages", WIDE)
    repair = f"{address}/ns/primary/repair?path=orders/$DeadLetterQueue&sql=DeadLetterReason%20%3D%20%27Timeout%27&action=SET%20attempt%20%3D%200"
    take(tab, repair, "repair", WIDE)
    rules = f"{address}/ns/primary/rules?path=events/Subscriptions/audit"
    tab.open(rules)
    tab.fill("form[data-check] [name=name]", "reds")
    tab.fill("[name=filter]", "colour = 'red' AND n > 4")
    tab.fill("[name=action]", "SET colour = 'crimson'; REMOVE n")
    tab.wait("document.querySelector('#rule-result ins')")
    tab.run("window.scrollTo(0, 250)")
    tab.picture(FOLDER / "rules.png")
    primary.store_down(2)
    take(
        tab,
        f"{address}/ns/primary/stores?path=orders",
        "stores",
        WIDE,
        wait="document.querySelector('.heat-gone')",
        dark=True,
    )
    take(tab, f"{address}/ns/primary/entity?path=orders", "entity-narrow", NARROW)
    primary.store_up(2)


if __name__ == "__main__":
    main()
