"""What nodes of a namespace ask each other through their supervisor, and whose turn a change is."""

import pytest

from twinbus.server.nodes.switchboard import FOLLOW, Switchboard, Words


class Nodes:
    """Three of them, and what each was told."""

    def __init__(self, *nodes: int) -> None:
        self.said: dict[int, list[Words]] = {node: [] for node in nodes}
        self.board = Switchboard(lambda node, words: self.said[node].append(words))
        for node in nodes:
            self.board.joined(node)
        self.forget()

    def forget(self) -> None:
        for said in self.said.values():
            said.clear()

    def take(self, node: int) -> list[Words]:
        said, self.said[node] = self.said[node], []
        return [words for words in said if "nodes" not in words]

    def answer(self, node: int, value: object) -> None:
        (asked,) = self.take(node)
        self.board.told(node, {"answer": asked["asked"], "value": value})


@pytest.fixture
def nodes() -> Nodes:
    return Nodes(0, 1, 2)


def test_a_question_to_all_is_answered_when_the_last_of_them_has_answered(nodes: Nodes) -> None:
    nodes.board.told(0, {"ask": 7, "to": None, "what": "stores", "with": {}})
    nodes.answer(2, "two")
    assert nodes.take(0) == []
    nodes.answer(1, "one")
    assert nodes.take(0) == [{"answers": 7, "of": {"2": {"value": "two"}, "1": {"value": "one"}}}]


def test_a_node_that_ends_is_out_of_the_question(nodes: Nodes) -> None:
    nodes.board.told(0, {"ask": 7, "to": None, "what": "stores", "with": {}})
    nodes.answer(2, "two")
    nodes.board.left(1)
    assert nodes.take(0) == [{"answers": 7, "of": {"2": {"value": "two"}}}]


def test_a_question_to_a_node_that_has_ended_has_no_answer(nodes: Nodes) -> None:
    nodes.board.left(1)
    nodes.board.told(0, {"ask": 7, "to": 1, "what": "switch", "with": {}})
    assert nodes.take(0) == [{"answers": 7, "of": {}}]


def test_an_answer_counts_once(nodes: Nodes) -> None:
    nodes.board.told(0, {"ask": 7, "to": 1, "what": "switch", "with": {}})
    (asked,) = nodes.take(1)
    for _ in range(2):
        nodes.board.told(1, {"answer": asked["asked"], "value": 1})
    assert len(nodes.take(0)) == 1


def test_the_answer_to_a_node_that_has_ended_is_not_taken_for_one_to_its_successor(nodes: Nodes) -> None:
    nodes.board.told(0, {"ask": 7, "to": 1, "what": "switch", "with": {}})
    (asked,) = nodes.take(1)
    nodes.board.left(0)
    nodes.board.joined(0)
    nodes.board.told(0, {"ask": 7, "to": 2, "what": "stores", "with": {}})
    nodes.board.told(1, {"answer": asked["asked"], "value": "switched"})
    assert nodes.take(0) == []
    nodes.answer(2, "stores")
    assert nodes.take(0) == [{"answers": 7, "of": {"2": {"value": "stores"}}}]


def test_what_a_node_asked_that_has_ended_is_not_kept(nodes: Nodes) -> None:
    nodes.board.told(0, {"ask": 7, "to": 1, "what": "switch", "with": {}})
    nodes.board.left(0)
    assert not nodes.board._questions


def test_one_node_at_a_time_has_the_turn_of_a_name(nodes: Nodes) -> None:
    for node in (0, 1):
        nodes.board.told(node, {"turn": 1, "name": "orders"})
    nodes.board.told(2, {"turn": 1, "name": "other"})
    assert [nodes.take(node) for node in (0, 1, 2)] == [[{"granted": 1}], [], [{"granted": 1}]]
    nodes.board.told(0, {"done": 1})
    assert nodes.take(1) == [{"granted": 1}]


def test_who_does_not_wait_any_longer_is_passed_over(nodes: Nodes) -> None:
    for node in (0, 1, 2):
        nodes.board.told(node, {"turn": 1, "name": "orders"})
    nodes.board.told(1, {"done": 1})
    nodes.forget()
    nodes.board.told(0, {"done": 1})
    assert (nodes.take(1), nodes.take(2)) == ([], [{"granted": 1}])


def test_the_turn_of_a_node_that_ended_is_passed_on_when_all_others_have_looked_up_what_it_left(nodes: Nodes) -> None:
    for node in (0, 1):
        nodes.board.told(node, {"turn": 1, "name": "orders"})
    nodes.forget()
    nodes.board.left(0)
    for node in (1, 2):
        (asked,) = nodes.take(node)
        assert (asked["what"], asked["with"]) == (FOLLOW, {"path": "orders"})
        assert nodes.take(1) == []
        nodes.board.told(node, {"answer": asked["asked"], "value": None})
    assert nodes.take(1) == [{"granted": 1}]


def test_a_turn_that_is_asked_for_meanwhile_waits_too(nodes: Nodes) -> None:
    nodes.board.told(0, {"turn": 1, "name": "orders"})
    nodes.board.left(0)
    nodes.board.told(2, {"turn": 5, "name": "orders"})
    for node in (1, 2):
        (asked, *rest) = nodes.take(node)
        assert rest == []
        nodes.board.told(node, {"answer": asked["asked"], "value": None})
    assert nodes.take(2) == [{"granted": 5}]


def test_everybody_learns_who_lives(nodes: Nodes) -> None:
    nodes.board.left(1)
    assert nodes.said[0][-1] == nodes.said[2][-1] == {"nodes": [0, 2]}
    nodes.board.joined(1)
    assert all(said[-1]["nodes"] == [0, 1, 2] for said in nodes.said.values())


def test_a_node_that_comes_is_told_what_is_being_changed(nodes: Nodes) -> None:
    nodes.board.told(0, {"turn": 1, "name": "orders"})
    nodes.board.told(0, {"turn": 2, "name": "done"})
    nodes.board.told(0, {"done": 2})
    nodes.board.left(1)
    nodes.forget()
    nodes.board.joined(1)
    everybody = {"nodes": [0, 1, 2]}
    assert [nodes.said[node] for node in (0, 1, 2)] == [
        [everybody],
        [everybody | {"changing": ["orders"]}],
        [everybody],
    ]


def test_nothing_is_kept_of_turns_and_questions_that_are_over(nodes: Nodes) -> None:
    nodes.board.told(0, {"turn": 1, "name": "orders"})
    nodes.board.told(0, {"ask": 2, "to": 1, "what": "x", "with": {}})
    nodes.answer(1, None)
    nodes.board.told(0, {"done": 1})
    assert not nodes.board._turns
    assert not nodes.board._questions
