"""Dead letters in the portal: groups, preview, repair; and the way without the operation of twinbus."""

import json

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from tests.portal.test_screens import HOSTILE, finished, text_of
from twinbus.client.received_message import ReceivedMessage
from twinbus.portal.messages.filters import compiled_filter
from twinbus.portal.namespaces.bus import Bus
from twinbus.portal.work import repairing
from twinbus.portal.work.jobs import Job
from twinbus.portal.work.moving import Move, moving
from twinbus.testing.local_namespace import LocalNamespace


def dead_letters(namespace: LocalNamespace, name: str, *reasons: str, **properties: bool) -> str:
    """A queue with one dead letter for each reason. Returns the path of the sub-queue."""
    namespace.create_queue(name, **properties)
    with namespace.client() as client, client.get_queue_sender(name) as sender:
        for number, _ in enumerate(reasons):
            sender.send_messages(
                ServiceBusMessage(
                    f"order {number}", message_id=f"m{number}", application_properties={"n": number, "attempt": 9}
                )
            )
    with namespace.client() as client, client.get_queue_receiver(name, max_wait_time=5) as receiver:
        done = 0
        while done < len(reasons):
            for message in receiver.receive_messages(max_message_count=10, max_wait_time=5):
                reason = reasons[int(str(message.message_id)[1:])]
                receiver.dead_letter_message(message, reason=reason, error_description=f"about {reason}")
                done += 1
    return f"{name}/$DeadLetterQueue"


def test_dead_letters_are_grouped_by_reason_description_and_first_words(
    namespace: LocalNamespace, pages: httpx.Client
) -> None:
    path = dead_letters(namespace, "grouped", "late", "late", HOSTILE, enable_partitioning=True)
    listed = text_of(pages.get("/ns/contoso/dead-letters"))
    assert "grouped" in listed
    page = text_of(pages.get("/ns/contoso/dead-letters", params={"path": path}))
    assert "3 of 3 dead letters in 2 groups" in page
    assert "about late" in page
    assert "<script>alert" not in page


def test_a_repair_is_previewed_before_and_after(namespace: LocalNamespace, pages: httpx.Client) -> None:
    path = dead_letters(namespace, "previewed", "late", "wrong")
    query = {"path": path, "sql": "DeadLetterReason = 'late'", "action": "SET attempt = 0"}
    page = text_of(pages.get("/ns/contoso/repair", params=query))
    assert "<b>attempt</b>: <del>9</del> <ins>0</ins>" in page
    assert page.count("<tbody>") == 1
    assert "m0" in page
    assert "m1" not in page
    assert namespace.message_count(path) == 2, "nothing has happened yet"
    wrong = text_of(pages.get("/ns/contoso/repair", params={**query, "action": "SET ="}), 400)
    assert "notice bad" in wrong


def test_messages_are_repaired_by_filter_and_delivery_counts_stay(
    namespace: LocalNamespace, pages: httpx.Client
) -> None:
    path = dead_letters(namespace, "repaired", "late", "wrong", "late", enable_partitioning=True)
    sent = {"path": path, "sql": "DeadLetterReason = 'late'", "action": "SET attempt = 0", "goal": "back"}
    page = finished(pages, pages.post("/ns/contoso/repair", data=sent))
    assert "2 messages moved" in page
    assert (namespace.message_count("repaired"), namespace.message_count(path)) == (2, 1)
    lines = text_of(pages.get("/ns/contoso/download", params={"path": "repaired"})).splitlines()
    messages = [json.loads(line) for line in lines]
    assert sorted(message["message_id"] for message in messages) == ["m0", "m2"]
    assert [message["properties"]["attempt"] for message in messages] == [0, 0]
    assert all("dead_letter_reason" not in message for message in messages)


def test_a_group_is_repaired_alone_and_goes_elsewhere(namespace: LocalNamespace, pages: httpx.Client) -> None:
    path = dead_letters(namespace, "by-group", "late", "wrong")
    namespace.create_queue("elsewhere")
    group = json.dumps(["wrong", "about wrong", "order #"])
    query = {"path": path, "group": group, "goal": "to", "to": "elsewhere"}
    assert "m1" in text_of(pages.get("/ns/contoso/repair", params=query))
    page = finished(pages, pages.post("/ns/contoso/repair", data=query))
    assert "1 message moved" in page
    assert (namespace.message_count("elsewhere"), namespace.message_count(path)) == (1, 1)


def test_dead_letters_are_removed(namespace: LocalNamespace, pages: httpx.Client) -> None:
    path = dead_letters(namespace, "removed", "late", "late")
    page = finished(pages, pages.post("/ns/contoso/repair", data={"path": path, "goal": "remove"}))
    assert "2 messages removed" in page
    assert (namespace.message_count("removed"), namespace.message_count(path)) == (0, 0)


def test_a_repair_that_is_stopped_in_time_changes_nothing(
    namespace: LocalNamespace, pages: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repairing, "GRACE_S", 60.0)
    path = dead_letters(namespace, "undone", "late")
    answer = pages.post("/ns/contoso/repair", data={"path": path, "goal": "remove"})
    assert "Stop it now to change nothing" in text_of(pages.get(answer.url.path))
    pages.post(f"{answer.url.path}/stop")
    assert "Nothing was changed" in finished(pages, answer)
    assert namespace.message_count(path) == 1


async def test_without_the_operation_messages_are_received_sent_and_completed(namespace: LocalNamespace) -> None:
    """As against Azure: the same SDK protocol and nothing else."""
    path = dead_letters(namespace, "moved", "late", "wrong", "late")
    bus = Bus("contoso", namespace.connection_string, namespace.endpoint)
    job = Job("1", "move", "/", "")
    try:
        said = await moving(bus, path, Move("moved", "SET attempt = 1"), compiled_filter("DeadLetterReason = 'late'"))(
            job
        )
    finally:
        await bus.close()
    assert said == "2 messages moved to moved."
    assert (namespace.message_count("moved"), namespace.message_count(path)) == (2, 1)
    with namespace.client() as client, client.get_queue_receiver("moved", max_wait_time=5) as receiver:
        for message in receiver.peek_messages(5):
            assert message.dead_letter_reason is None
            assert (message.application_properties or {})[b"attempt"] == 1


async def test_without_the_operation_nothing_is_moved_to_where_it_would_be_dropped(namespace: LocalNamespace) -> None:
    path = dead_letters(namespace, "copied", "late")
    namespace.administration.create_queue("once", requires_duplicate_detection=True)
    bus = Bus("contoso", namespace.connection_string, namespace.endpoint)
    try:
        job = Job("1", "move", "/", "")
        assert await moving(bus, path, Move("once"), compiled_filter(""))(job) == "0 messages moved to once."
        assert "newid()" in job.lines[-1]
        assert namespace.message_count(path) == 1
        job = Job("2", "move", "/", "")
        said = await moving(bus, path, Move("once", "SET sys.MessageId = newid()"), compiled_filter(""))(job)
    finally:
        await bus.close()
    assert said == "1 message moved to once."
    assert (namespace.message_count("once"), namespace.message_count(path)) == (1, 0)


@pytest.mark.parametrize("destination", ["copies", None])
async def test_without_the_operation_what_was_not_removed_is_said(
    namespace: LocalNamespace, destination: str | None
) -> None:
    source = namespace.create_queue("not-removed")
    if destination is not None:
        namespace.create_queue(destination)
        assert namespace.store_of(source) != namespace.store_of(destination)
    with namespace.client() as client, client.get_queue_sender(source) as sender:
        sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    bus, job = Bus("contoso", namespace.connection_string, namespace.endpoint), Job("1", "move", "/", "")
    store = namespace.store_of(source)

    def chosen(message: ReceivedMessage) -> bool:
        namespace.store_down(store)
        return True

    try:
        said = await moving(bus, source, Move(destination), chosen)(job)
    finally:
        await bus.close()
        namespace.store_up(store)
    if destination is None:
        assert said == "0 messages removed. 2 were not removed; the reasons are below."
    else:
        assert said.startswith("0 messages moved to copies. 2 were sent and not removed here")
        assert namespace.message_count(destination) == 2
    assert len(job.lines) == 2
    namespace.administration.delete_queue(source)


async def test_without_the_operation_what_comes_back_at_once_is_not_moved_again(namespace: LocalNamespace) -> None:
    """As where a consumer dead-letters it again; here the messages go to the queue that they come from."""
    namespace.create_queue("ring")
    with namespace.client() as client, client.get_queue_sender("ring") as sender:
        sender.send_messages([ServiceBusMessage("one"), ServiceBusMessage("two")])
    bus, job = Bus("contoso", namespace.connection_string, namespace.endpoint), Job("1", "move", "/", "")

    def chosen(_: ReceivedMessage) -> bool:
        assert job.done < 10, "it goes on for ever"
        return True

    try:
        assert await moving(bus, "ring", Move("ring"), chosen)(job) == "2 messages moved to ring."
    finally:
        await bus.close()
    assert namespace.message_count("ring") == 2
