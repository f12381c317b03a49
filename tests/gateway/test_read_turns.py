"""Requests that bring messages: few at a time, none while the client does not read, each answered once."""

from twinbus.clock import Millis
from twinbus.gateway.nodes.management_node import PENDING_MAX
from twinbus.gateway.nodes.read_turns import READS_MAX, ReadTurns
from twinbus.gateway.nodes.request_message import Response
from twinbus.gateway.requests.call import Respond

NOON = 1_000_000
LATER = NOON + 60_000


class Asked:
    def __init__(self) -> None:
        self.turns = ReadTurns()
        self.running: list[Respond] = []
        self.answers: list[Response] = []

    def ask(self, count: int, deadline: Millis = LATER) -> None:
        for _ in range(count):
            self.turns.ask(lambda _, respond: self.running.append(respond), NOON, deadline, self.answers.append)


def test_a_few_run_at_a_time_and_the_next_one_begins_when_one_is_answered() -> None:
    asked = Asked()
    asked.ask(READS_MAX + 5)
    assert len(asked.running) == READS_MAX
    assert asked.turns.is_behind
    for left in range(READS_MAX + 4, -1, -1):
        asked.running.pop(0)(Response.ok())
        assert len(asked.running) == min(left, READS_MAX)
    assert len(asked.answers) == READS_MAX + 5
    assert not asked.running
    assert not asked.turns.is_behind


def test_nothing_begins_while_the_client_does_not_read() -> None:
    asked = Asked()
    asked.ask(1)
    asked.turns.pause()
    asked.ask(2)
    asked.running[0](Response.ok())
    assert len(asked.running) == 1
    asked.turns.resume(NOON)
    assert len(asked.running) == 3


def test_work_that_is_answered_at_once_does_not_pile_up_on_the_stack() -> None:
    turns, answers = ReadTurns(), list[Response]()
    turns.pause()
    for _ in range(PENDING_MAX):
        turns.ask(lambda _, respond: respond(Response.ok()), NOON, LATER, answers.append)
    turns.resume(NOON)
    assert len(answers) == PENDING_MAX


def test_one_that_waited_too_long_is_answered_with_a_timeout_and_never_begins() -> None:
    asked = Asked()
    asked.turns.pause()
    asked.ask(1, deadline=NOON + 10)
    asked.ask(1)
    asked.turns.tick(NOON + 10)
    assert [each.status for each in asked.answers] == [408]
    asked.turns.resume(NOON + 10)
    assert len(asked.running) == 1


def test_beyond_a_number_that_waits_a_request_is_refused() -> None:
    asked = Asked()
    asked.ask(PENDING_MAX + 1)
    assert [each.status for each in asked.answers] == [503]
