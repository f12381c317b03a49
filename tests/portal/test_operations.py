"""Stores and faults, pairing, and the bill, over HTTP."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from azure.servicebus import ServiceBusMessage

from tests.portal.running_portal import RunningPortal, known
from tests.portal.test_screens import finished, text_of
from twinbus.portal.screens.pairing import Backlog, Waiting, backlog_part
from twinbus.testing.local_namespace import LocalNamespace


def test_a_store_is_broken_and_mended_with_the_heat_map_beside_it(
    namespace: LocalNamespace, pages: httpx.Client
) -> None:
    namespace.create_queue("beside", enable_partitioning=True)
    where = {"path": "beside"}
    page = text_of(pages.post("/ns/contoso/stores", params=where, data={"store": "1", "action": "down"}))
    assert "down" in page
    assert page.count("heat-gone") == 8
    assert "Limited" in text_of(pages.get("/ns/contoso/entity", params=where))
    page = text_of(pages.post("/ns/contoso/stores", params=where, data={"store": "all", "action": "up"}))
    assert "heat-gone" not in page


def test_a_store_is_slowed_and_loses_acknowledgements(pages: httpx.Client) -> None:
    page = text_of(pages.post("/ns/contoso/stores", data={"store": "0", "action": "slow", "value": "15"}))
    assert "15 ms" in page
    page = text_of(pages.post("/ns/contoso/stores", data={"store": "0", "action": "lose-ack", "value": "soon"}), 400)
    assert "is not a whole number" in page
    text_of(pages.post("/ns/contoso/stores", data={"store": "all", "action": "up"}))
    text_of(pages.post("/ns/contoso/stores", data={"action": "disconnect", "value": "nothing"}))


def test_live_parts_of_a_page_arrive_as_events(namespace: LocalNamespace, pages: httpx.Client) -> None:
    namespace.create_queue("watched")
    for path, element in (("/live/overview", "state-contoso"), ("/ns/contoso/live?path=watched", "fragments")):
        with pages.stream("GET", path) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            lines = stream.iter_lines()
            data = next(line for line in lines if line.startswith("data:"))
            assert element in data


def test_one_namespace_is_not_a_pair(pages: httpx.Client) -> None:
    assert "A pair needs two namespaces" in text_of(pages.get("/pairing"))


def test_the_bill_says_where_logs_are_needed(pages: httpx.Client) -> None:
    page = text_of(pages.get("/bill"))
    assert "There is no operations log on this machine" in page
    asked = {
        "do": "estimate",
        "queues": "10",
        "syphons": "1",
        "processes": "1",
        "entities": "1",
        "size": "1024",
        "poll": "1m",
    }
    asked |= {"ping_interval": "1m", "failover_interval": "0s", "outage": "2h", "rate": "50"}
    estimated = text_of(pages.get("/bill", params=asked))
    assert "30 days with this outage" in estimated
    assert "is not a duration" in text_of(pages.get("/bill", params={**asked, "poll": "soon"}))


# A pair with meters


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[LocalNamespace, LocalNamespace]]:
    folder: Path = tmp_path_factory.mktemp("pair")
    with (
        LocalNamespace(folder / "a", "primary", store_count=1) as first,
        LocalNamespace(folder / "b", "secondary", store_count=1) as second,
    ):
        yield first, second


@pytest.fixture(scope="module")
def pair_pages(pair: tuple[LocalNamespace, LocalNamespace]) -> Iterator[httpx.Client]:
    with RunningPortal([known(each) for each in pair]) as portal, portal.client() as client:
        yield client


def test_the_backlog_is_shown_by_queue_and_destination(
    pair: tuple[LocalNamespace, LocalNamespace], pair_pages: httpx.Client
) -> None:
    queue = "primary/x-servicebus-transfer/0"
    pair[1].create_queue(queue)
    with pair[1].client() as client, client.get_queue_sender(queue) as sender:
        sender.send_messages([ServiceBusMessage("x", application_properties={"x-ms-path": "orders"}) for _ in range(3)])
    page = text_of(pair_pages.get("/pairing"))
    assert queue in page
    assert "orders" in page
    assert "Primary: " in page
    with pair_pages.stream("GET", "/live/pairing") as stream:
        assert any('"id": "backlog"' in line for line in stream.iter_lines() if line.startswith("data:"))
    same = pair_pages.get("/pairing", params={"primary": "primary", "secondary": "primary"})
    assert "Choose two" in text_of(same, 400)


def test_the_drain_rate_and_the_time_left_come_from_two_readings() -> None:
    before = Backlog(0.0, [Waiting("q", "orders", 900, 1, True)])
    now = Backlog(10.0, [Waiting("q", "orders", 600, 1, True)])
    part = backlog_part(now, before)
    assert "30.0/s" in part
    assert "0:00:20" in part
    assert "Grows by" in backlog_part(before, Backlog(-1.0, now.rows))


def test_a_syphon_runs_as_a_process_and_is_stopped(
    pair: tuple[LocalNamespace, LocalNamespace], pair_pages: httpx.Client
) -> None:
    """These namespaces are not in the portal's data folder, so the command says so and the job fails with its sentence."""
    answer = pair_pages.post(
        "/syphon", params={"primary": "primary", "secondary": "secondary"}, data={"until_empty": "on"}
    )
    page = finished(pair_pages, answer)
    assert "It ended with code 1" in page
    assert "No namespace" in page


def test_a_number_that_is_none_is_refused(pair_pages: httpx.Client) -> None:
    assert "is not a number" in text_of(pair_pages.post("/rehearse", data={"duration": "long"}), 400)
    assert "Use a number from" in text_of(pair_pages.post("/rehearse", data={"duration": "1"}), 400)
