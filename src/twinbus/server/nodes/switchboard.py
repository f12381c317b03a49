"""What the processes of one namespace ask each other about it, and whose turn it is: messages in, messages out.

The messages of a namespace take lines from node to node. Everything that happens seldom goes through the process that started
the nodes, because that one knows at any time which of them live:

    node > here     {"ask": 7, "to": 2 or null for all others, "what": "follow", "with": {"path": "orders"}}
    here > node     {"asked": 31, "what": ..., "with": ...}
    node > here     {"answer": 31, "value": ...} or {"answer": 31, "error": {"kind": ..., "text": ...}}
    here > node     {"answers": 7, "of": {"2": {"value": ...} or {"error": ...}}}       when all have answered, or have ended
    node > here     {"turn": 8, "name": "orders"}      here > node     {"granted": 8}      node > here     {"done": 8}
    here > node     {"nodes": [0, 1, 3]}               whenever a node comes or goes
    here > node     {"nodes": [0, 1, 3], "changing": ["orders"]}         to a node that comes, with the names whose turn somebody has
    node > here     {"totals": 9, "with": {...}}       here > node     {"answers": 9, "of": {"text": ...}}        the metrics of all

A node that ends is out of every question: who asked gets no answer of it. What it asked itself is forgotten: another process has its number
soon, and begins to count from 1. The turns it had are passed on only after all others have looked up
what it left behind: it may have ended after it changed something and before it told them.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeAlias

Words: TypeAlias = dict[str, Any]
"""A message; what JSON can express."""
Send: TypeAlias = Callable[[int, Words], None]
"""To this node."""

FOLLOW = "follow"
"""The question that makes a node look up in the catalog what there is at a path."""


@dataclass(slots=True)
class _Question:
    asker: int | None  # None: who started the nodes
    missing: set[int]
    done: Callable[[Words], None]
    answers: Words = field(default_factory=dict)


class _Place(NamedTuple):
    """In the queue for a name."""

    node: int
    number: int


class Switchboard:
    def __init__(self, send: Send) -> None:
        self._send = send
        self.nodes: set[int] = set()
        self._last_number = 0
        self._questions: dict[int, _Question] = {}
        self._turns: dict[str, deque[_Place]] = {}
        self._orphans: set[str] = set()
        """Names whose turn belonged to a node that ended: nobody gets it before the others have looked."""

    def joined(self, node: int) -> None:
        self.nodes.add(node)
        self._tell_who_lives(coming=node)

    def left(self, node: int) -> None:
        """It has ended, or does not answer any more."""
        if node not in self.nodes:
            return
        self.nodes.discard(node)
        for number, question in list(self._questions.items()):
            if question.asker == node:
                del self._questions[number]
            else:
                question.missing.discard(node)
                self._finish(number)
        held = [name for name, places in self._turns.items() if places[0].node == node]
        for name in list(self._turns):
            self._turns[name] = deque(place for place in self._turns[name] if place.node != node)
        self._tell_who_lives()
        for name in held:
            self._orphans.add(name)
            self.ask(sorted(self.nodes), FOLLOW, {"path": name}, partial(self._looked_up, name))
        self._drop_empty()

    def told(self, node: int, words: Words) -> None:
        """A message of a node."""
        if "ask" in words:
            wanted = self.nodes - {node} if words["to"] is None else self.nodes & {words["to"]}
            number = words["ask"]
            self._ask(
                node, wanted, words["what"], words["with"], lambda of: self._send(node, {"answers": number, "of": of})
            )
        elif "answer" in words:
            question = self._questions.get(words["answer"])
            if question is not None and node in question.missing:
                question.missing.discard(node)
                question.answers[str(node)] = {key: words[key] for key in ("value", "error") if key in words}
                self._finish(words["answer"])
        elif "turn" in words:
            places = self._turns.setdefault(words["name"], deque())
            places.append(_Place(node, words["turn"]))
            if len(places) == 1:
                self._grant(words["name"])
        elif "done" in words:
            self._turn_done(_Place(node, words["done"]))

    def ask(self, nodes: Sequence[int], what: str, details: Words, done: Callable[[Words], None]) -> None:
        """`done` gets the answers by node, of those that have not ended meanwhile."""
        self._ask(None, nodes, what, details, done)

    def _ask(
        self, asker: int | None, nodes: Iterable[int], what: str, details: Words, done: Callable[[Words], None]
    ) -> None:
        self._last_number = number = self._last_number + 1
        self._questions[number] = _Question(asker, set(nodes), done)
        for node in sorted(nodes):
            self._send(node, {"asked": number, "what": what, "with": details})
        self._finish(number)

    def _finish(self, number: int) -> None:
        question = self._questions.get(number)
        if question is not None and not question.missing:
            del self._questions[number]
            question.done(question.answers)

    def _grant(self, name: str) -> None:
        places = self._turns.get(name)
        if places and name not in self._orphans:
            self._send(places[0].node, {"granted": places[0].number})

    def _turn_done(self, place: _Place) -> None:
        """Also of a node that does not want to wait any longer."""
        for name, places in self._turns.items():
            if place in places:
                was_first = places[0] == place
                places.remove(place)
                if was_first:
                    self._grant(name)
                break
        self._drop_empty()

    def _looked_up(self, name: str, _: Words) -> None:
        self._orphans.discard(name)
        self._grant(name)
        self._drop_empty()

    def _drop_empty(self) -> None:
        for name in [name for name, places in self._turns.items() if not places]:
            del self._turns[name]

    def _tell_who_lives(self, coming: int | None = None) -> None:
        nodes: Iterable[int] = sorted(self.nodes)
        for node in nodes:
            words: Words = {"nodes": list(nodes)}
            if node == coming:
                words["changing"] = sorted(self._turns)
            self._send(node, words)
