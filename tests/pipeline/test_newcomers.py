"""Entities that appear while a capture runs; the captures are never started."""

from collections.abc import Callable
from typing import Any

from azure.core.exceptions import ServiceRequestError

from twinbus.pipeline.capture import Capture, CaptureMode, CaptureSettings, CaptureState
from twinbus.pipeline.newcomers import LIST_EVERY_S, Newcomers

NO_SESSION: Any = None
SETTINGS = CaptureSettings("lake", CaptureMode.BROWSE, {}, interval_s=1)


def capture(path: str) -> Capture:
    return Capture(NO_SESSION, path, SETTINGS)


def made(*captures: Capture, listed: Callable[[], list[str]]) -> Newcomers:
    found = Newcomers(captures, listed, capture)
    assert found(0) == []  # all that is there is captured already
    return found


def test_what_appears_is_captured_once_and_not_looked_for_all_the_time() -> None:
    listed = ["orders", "Returns"]
    newcomers = made(capture("orders"), listed=lambda: listed)
    assert newcomers(LIST_EVERY_S - 1) == []
    assert [each.tally.entity for each in newcomers(LIST_EVERY_S)] == ["Returns"]
    assert newcomers(2 * LIST_EVERY_S) == []


def test_an_entity_that_was_gone_and_is_there_again_goes_on_with_its_capture() -> None:
    listed: list[str] = []
    orders = capture("orders")
    newcomers = made(orders, listed=lambda: listed)
    orders.tally.state = CaptureState.FAILED
    assert newcomers(LIST_EVERY_S) == []
    assert orders.is_over
    listed = ["ORDERS"]
    assert newcomers(2 * LIST_EVERY_S) == []
    assert not orders.is_over


def test_a_capture_that_failed_for_another_reason_is_left_alone() -> None:
    orders = capture("orders")
    newcomers = made(orders, listed=lambda: ["orders"])
    orders.tally.state = CaptureState.FAILED
    assert newcomers(LIST_EVERY_S) == []
    assert orders.tally.state is CaptureState.FAILED


def test_a_namespace_that_does_not_answer_is_asked_again_later() -> None:
    is_up = False

    def listed() -> list[str]:
        if not is_up:
            raise ServiceRequestError("no route to host")
        return ["orders"]

    newcomers = made(listed=listed)
    assert newcomers(LIST_EVERY_S) == []
    is_up = True
    assert newcomers(LIST_EVERY_S + 1) == []
    assert [each.tally.entity for each in newcomers(2 * LIST_EVERY_S)] == ["orders"]
