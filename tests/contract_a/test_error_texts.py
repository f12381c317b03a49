"""Error texts name the real cause, and give advice that whoever gets them can follow (docs/contract.md A20).

The texts are found in the source: wherever an error of `twinbus.errors` is created with one. `SITUATIONS` says what the
caller of that code was doing, by the longest place that fits: a package, a module, or a function of it. `ADVICE` says to
whom a phrase is of use, and `WORDS` which names code must use to speak of a thing. So a new text is checked without
further ado, unless it is in a place that nobody has classified yet: then add that place to `SITUATIONS`.

What is raised in one place and reaches callers of many kinds (a store is lost) is checked by running them.
"""

import ast
import re
from collections.abc import Callable, Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import twinbus
from twinbus import errors
from twinbus.broker.commands import (
    CancelScheduled,
    Command,
    GetSessionState,
    ListSessions,
    Peek,
    PeekMerged,
    ReceiveDeferred,
)
from twinbus.broker.consumer import ReceiveMode
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.model.descriptions import QueueDescription
from twinbus.testing.messages import make_message
from twinbus.testing.simulation import Answer, Simulation

SOURCE = Path(twinbus.__file__).parent
PACKAGES = ("broker", "gateway", "management", "http", "model")
CLASSES = {name for name, each in vars(errors).items() if isinstance(each, type)}


class Doing(Enum):
    """What the caller was doing when the error was raised."""

    SEND = auto()
    RECEIVE = auto()  # and peek
    SETTLE = auto()  # and renew
    SESSION = auto()
    TRANSACT = auto()
    MANAGE = auto()  # entities
    RULES = auto()
    CONNECT = auto()  # connections, links and tokens
    ASK = auto()  # with a malformed request to `$management` or to a page of ours
    ANYTHING = auto()  # so that advice for one of them is wrong for the others


SEND, RECEIVE, SETTLE, SESSION = Doing.SEND, Doing.RECEIVE, Doing.SETTLE, Doing.SESSION
TRANSACT, MANAGE, RULES, CONNECT, ASK = Doing.TRANSACT, Doing.MANAGE, Doing.RULES, Doing.CONNECT, Doing.ASK
ANYTHING = Doing.ANYTHING

SITUATIONS: dict[str, set[Doing]] = {
    "broker/entity/entities.py": {MANAGE},
    "broker/entity/fan_out.py:FanOut._check_session": {SEND, RULES},
    "broker/entity/message_queue.py": {RECEIVE},
    "broker/entity/message_queue.py:MessageQueue._no_sessions": {SESSION},
    "broker/entity/message_queue.py:MessageQueue.renew": {SETTLE},
    "broker/entity/placement.py": {SEND},
    "broker/entity/runs.py": {SEND},
    "broker/entity/session_desk.py": {SESSION},
    "broker/entity/topic_room.py": {SEND},
    "broker/entity/transfers.py": {TRANSACT},
    "broker/entity_settings.py": {MANAGE},  # a status that only a manager can change
    "broker/fragment/fragment_group.py": {RECEIVE, SETTLE},
    "broker/fragment/fragment_group.py:check_all_available": {MANAGE},
    "broker/fragment/intake.py": {SEND},
    "broker/fragment/names.py": {SEND},
    "broker/fragment/settlement.py": {SETTLE},
    "broker/fragment/settlement.py:lock_lost": {SETTLE, SESSION},
    "broker/fragment_transaction.py": {TRANSACT},
    "broker/message_broker.py": {ANYTHING},
    "broker/operations": {RECEIVE, SETTLE},
    "gateway/authorization.py": {CONNECT},
    "gateway/connection_gateway.py": {CONNECT},
    "gateway/connections.py": {CONNECT},
    "gateway/links": {CONNECT},
    "gateway/links/attachment.py:Attachment._bind_sender": {SEND},
    "gateway/links/attachment.py:Attachment._via": {SEND},
    "gateway/links/outcome_states.py": {SETTLE},
    "gateway/links/receiver_attach.py": {RECEIVE},
    "gateway/links/session_attach.py": {SESSION},
    "gateway/nodes": {ASK},
    "gateway/nodes/cbs_node.py": {CONNECT},
    "gateway/nodes/coordinator.py": {TRANSACT},
    "gateway/transaction_room.py": {TRANSACT},
    "gateway/nodes/management_node.py": {ASK, TRANSACT},
    "gateway/nodes/transaction_homes.py": {TRANSACT},
    "gateway/requests": {ASK},
    "gateway/requests/call.py": {ASK, SESSION},
    "gateway/requests/rules.py": {RULES},
    "gateway/requests/schedule.py": {SEND},
    "gateway/requests/sessions.py": {SESSION},
    "gateway/web_tokens.py": {CONNECT},
    "http/administration": {MANAGE},
    "http/atom": {MANAGE, RULES},
    "http/messaging": {SEND, RECEIVE},
    "http/own": {ASK},
    "http/refusals.py": {ANYTHING},
    "http/request_body.py": {ASK},
    "management": {MANAGE, RULES},
    "model/annotations.py": {SEND},
    "model/content.py": {SEND},
    "model/durations.py": {ANYTHING},
    "model/identity.py": {SEND},
    "model/iso8601.py": {ANYTHING},
    "model/message.py": {SEND},
    "model/partition_key.py": {SEND},
    "model/paths.py": {ANYTHING},
    "model/rules": {RULES},
}

# Phrases of advice, and whom they are of use to.
ADVICE: tuple[tuple[str, set[Doing]], ...] = (
    (r"session id on every message|without (a )?session id|without (a )?partition key", {SEND, TRANSACT}),
    (r"[Ss]end (a smaller|smaller|fewer|less|one batch|without|to its queue)", {SEND}),
    (r"[Ss]end via|[Tt]ransaction|Commit |Discharge|Declare", {TRANSACT, SETTLE}),
    (r"Receive (the message|them)|Accept |Peek", {RECEIVE, SETTLE, SESSION}),
    (r"receive from", {RECEIVE, TRANSACT}),
    (r"[Rr]enew", {SETTLE, SESSION}),
    (r"Receive messages from it|[Pp]artition the entity|duplicate detection window", {SEND}),
    (r"another name|[Dd]elete (some|one|rules|the entity|it)|update it|created without|into the path", {MANAGE, RULES, SESSION}),
    (r"api-version|If-Match|Atom|XML", {MANAGE, RULES}),
    (r"\$cbs|attach again|[Ss]ign a|connection string|Authorization", {CONNECT}),
    (r"(SQL|correlation|true) filter", {RULES, MANAGE}),
)  # fmt: skip

CLAUSE = re.compile(r"[.;:] ['{\w]")
"""What is wrong, and behind it a second sentence or clause that says what to do."""
DEMAND = re.compile(r"\b(must|has to|needs?|at most|supports only)\b|^(Name|Use|Send) ")
"""Or what is wanted, which says both at once."""

# To speak of these, code has to know of them: names in the function that creates the error, or in its class.
WORDS = {
    "session id": "session|group_id",
    "partition key": "key",
    "lock token": "token|lock",
    "sequence number": "number|range",
    "transaction": "transaction|txn|home",
}
SPEAKS_OF_KEYS = "messages with one key lie in one fragment, and others may lie in several"
REASONS = {
    # Where a word stands for something that the code knows by another name.
    ("broker/fragment/fragment_group.py:_several_fragments", "session id"): SPEAKS_OF_KEYS,
    ("broker/fragment/fragment_group.py:_several_fragments", "partition key"): SPEAKS_OF_KEYS,
}


class Text(NamedTuple):
    place: str  # module:function
    line: int
    text: str  # with {} for what is filled in
    code: str  # that creates it, and that of its class, without texts

    def __str__(self) -> str:
        return f"src/twinbus/{self.place.partition(':')[0]}:{self.line} {self.text!r}"


def texts() -> Iterator[Text]:
    for package in PACKAGES:
        for module in sorted((SOURCE / package).rglob("*.py")):
            place = module.relative_to(SOURCE).as_posix()
            yield from _texts_in(ast.parse(module.read_text()), place, "", "")


def _texts_in(node: ast.AST, module: str, owner: str, code: str) -> Iterator[Text]:
    for child in ast.iter_child_nodes(node):
        name, child_code = owner, code
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            name = f"{owner}.{child.name}" if owner else child.name
            child_code = code or _names_in(child)
        elif isinstance(child, ast.Call) and (text := _text_of(child)) is not None:
            yield Text(f"{module}:{owner}", child.lineno, text, code)
        yield from _texts_in(child, module, name, child_code)


def _names_in(node: ast.AST) -> str:
    names = [each.id for each in ast.walk(node) if isinstance(each, ast.Name)]
    names += [each.attr for each in ast.walk(node) if isinstance(each, ast.Attribute)]
    names += [each.arg for each in ast.walk(node) if isinstance(each, ast.arg)]
    names += [each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef | ast.ClassDef)]
    return " ".join(names).lower()


def _text_of(call: ast.Call) -> str | None:
    if not isinstance(call.func, ast.Name) or call.func.id not in CLASSES or not call.args:
        return None
    match call.args[0]:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(each.value) if isinstance(each, ast.Constant) else "{}" for each in values)
    return None


TEXTS = list(texts())


def situation_of(place: str) -> set[Doing] | None:
    fitting = [each for each in SITUATIONS if place == each or place.startswith((f"{each}/", f"{each}:", f"{each}."))]
    return SITUATIONS[max(fitting, key=len)] if fitting else None


def misplaced(text: str, doing: set[Doing]) -> list[str]:
    """Phrases of advice in the text that are of no use to somebody who does this."""
    found = [(match[0], useful) for phrase, useful in ADVICE for match in re.finditer(phrase, text)]
    return [phrase for phrase, useful in found if not useful & doing]


def test_there_are_texts() -> None:
    assert len(TEXTS) > 200


def test_every_text_has_a_situation_and_no_advice_for_another() -> None:
    unknown = [str(text) for text in TEXTS if situation_of(text.place) is None]
    assert not unknown, "add their places to SITUATIONS:\n" + "\n".join(unknown)
    wrong = [(str(text), found) for text in TEXTS if (found := misplaced(text.text, situation_of(text.place) or set()))]
    assert not wrong


def test_every_situation_is_that_of_some_text() -> None:
    places = {text.place for text in TEXTS}
    idle = [each for each in SITUATIONS if not any(place.startswith(each) for place in places)]
    assert idle == []


def test_a_text_speaks_only_of_what_its_code_knows() -> None:
    wrong = [
        (str(text), word)
        for text in TEXTS
        for word, names in WORDS.items()
        if re.search(rf"\b{word}s?\b", text.text) and not re.search(names, f"{text.place} {text.code}".lower())
        if (text.place, word) not in REASONS
    ]
    assert not wrong


@pytest.mark.rule("A20.3")
def test_every_text_says_what_to_do() -> None:
    assert [str(text) for text in TEXTS if not CLAUSE.search(text.text) and not DEMAND.search(text.text)] == []


@pytest.mark.parametrize("is_partitioned", [False, True])
def test_a_lost_store_gives_everybody_a_text_of_their_own(is_partitioned: bool) -> None:
    sim = Simulation(1)
    queue = sim.queue(QueueDescription("q", enable_partitioning=is_partitioned))
    talks = sim.queue(QueueDescription("talks", requires_session=True, enable_partitioning=is_partitioned))
    sim.send(queue, make_message("m", partition_key="k"))
    sim.lose_store(0)
    given: list[tuple[str, set[Doing], errors.MessagingError | None]] = []
    for name, message in (("keyless", make_message("1")), ("pinned", make_message("1", partition_key="k"))):
        given.append((name, {SEND}, sim.send(queue, message).errors[0]))
    together: Answer[list[int]] = Answer()
    queue.send_batch([make_message("1")], sim.now, together)
    given.append(("batch", {SEND}, together.error))
    commands: tuple[tuple[QueueEntity, Command[Any], set[Doing]], ...] = (
        (queue, Peek(0, 1), {RECEIVE}),
        (queue, PeekMerged({}, 1), {RECEIVE}),
        (queue, ReceiveDeferred([1], ReceiveMode.PEEK_LOCK), {RECEIVE}),
        (queue, CancelScheduled([1]), {RECEIVE}),
        (talks, GetSessionState("s"), {SESSION}),
        (talks, ListSessions(None, 0, 1), {SESSION}),
    )
    for target, command, doing in commands:
        given.append((type(command).__name__, doing, sim.ask(target.main, command).error))
    managed = QueueDescription("new", enable_partitioning=is_partitioned)
    changes: dict[str, Callable[[Answer[Any]], None]] = {
        "create": lambda reply: sim.entities.create_queue(sim.next_id(), managed, sim.now, reply),
        "update": lambda reply: sim.entities.update(queue.description, sim.now, reply),
        "delete": lambda reply: sim.entities.delete("q", sim.now, reply),
    }
    for name, change in changes.items():
        answer: Answer[Any] = Answer()
        change(answer)
        sim.run()
        given.append((name, {MANAGE}, answer.error))
    assert [name for name, _, error in given if error is None] == []
    texts_given = {name: (str(error), misplaced(str(error), doing)) for name, doing, error in given}
    assert [each for each in texts_given.items() if each[1][1] or "messaging store 0" not in each[1][0].lower()] == []
    for name in ("keyless", "batch", "Peek", "create", "delete"):
        assert not re.search(r"session id|partition key|\bkey\b", texts_given[name][0])
