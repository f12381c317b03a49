"""The protocol between two nodes: questions, answers and silence, without a socket."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinbus.cluster.lines.error_values import KINDS, decode_error, encode_error
from twinbus.cluster.lines.frames import FRAME_BYTES_MAX, HEAD, FrameReader, Hello, Kind, encode_frame, encode_hello
from twinbus.cluster.lines.line import BEAT_EVERY, SILENCE_MAX, UNANSWERED_BYTES_MAX, Answer, Line, Topics
from twinbus.errors import (
    FragmentUnavailable,
    InternalError,
    MessagingError,
    NotAllowed,
    NotImplementedHere,
    OutcomeUnknown,
    ServerBusy,
)

ECHO, LATER, REFUSED, BROKEN, NEWS = 1, 2, 3, 4, 5
START = 1_000_000
SECOND_NODE = Hello(1, 2, "shop")


class Pair:
    """Two nodes, and the line between them under a hand that carries the bytes."""

    def __init__(self, hello: Hello = SECOND_NODE) -> None:
        self.now = START
        self.topics = [Topics(), Topics()]
        self.heard: list[bytes] = []
        self.kept: list[Answer] = []
        self.broken: list[int] = []
        for node, topics in enumerate(self.topics):
            topics.asks[ECHO] = lambda line, payload, now, answer: answer(payload.upper())
            topics.asks[LATER] = lambda line, payload, now, answer: self.kept.append(answer)
            topics.asks[REFUSED] = self._refuse
            topics.asks[BROKEN] = self._break
            topics.tells[NEWS] = lambda line, payload, now: self.heard.append(payload)
            topics.when_broken.append(lambda line, now, node=node: self.broken.append(node))  # type: ignore[misc]
        self.wakes = 0
        self.lines = [
            Line(Hello(0, 2, "shop"), self.topics[0], self.now, self._wake),
            Line(hello, self.topics[1], self.now, self._wake, peer=0),
        ]

    def _wake(self) -> None:
        self.wakes += 1

    def _refuse(self, line: Line, payload: bytes, now: int, answer: Answer) -> None:
        raise NotAllowed("never")

    def _break(self, line: Line, payload: bytes, now: int, answer: Answer) -> None:
        raise KeyError("a bug")

    def carry(self) -> None:
        while any([self._carry(0), self._carry(1)]):
            pass

    def _carry(self, node: int) -> bool:
        data = b"".join(self.lines[node].take_output())
        if data:
            self.lines[1 - node].receive(data, self.now)
        return bool(data)


@pytest.fixture
def pair() -> Pair:
    pair = Pair()
    pair.carry()
    return pair


def test_both_ends_know_who_is_at_the_other_one(pair: Pair) -> None:
    assert [line.peer and line.peer.node for line in pair.lines] == [1, 0]
    assert [line.version for line in pair.lines] == [1, 1]


def test_a_question_is_answered_by_the_other_node(pair: Pair) -> None:
    answers: list[bytes | MessagingError] = []
    pair.lines[0].ask(ECHO, b"hello", answers.append)
    pair.lines[1].ask(ECHO, b"and back", answers.append)
    pair.carry()
    assert answers == [b"HELLO", b"AND BACK"]


def test_answers_find_their_questions_in_any_order(pair: Pair) -> None:
    answers: list[tuple[str, bytes | MessagingError]] = []
    for name in ("first", "second"):
        pair.lines[0].ask(LATER, b"", lambda answer, name=name: answers.append((name, answer)))  # type: ignore[misc]
    pair.carry()
    pair.kept[1](b"2")
    pair.kept[0](b"1")
    pair.carry()
    assert answers == [("second", b"2"), ("first", b"1")]


def test_what_is_told_arrives_in_order(pair: Pair) -> None:
    for number in range(10):
        pair.lines[0].tell(NEWS, b"%d" % number)
    pair.carry()
    assert pair.heard == [b"%d" % number for number in range(10)]


def test_a_refusal_arrives_as_the_error_that_it_was(pair: Pair) -> None:
    answers: list[bytes | MessagingError] = []
    pair.lines[0].ask(REFUSED, b"", answers.append)
    pair.carry()
    assert [(type(answer), str(answer)) for answer in answers] == [(NotAllowed, "never")]


def test_a_bug_in_a_handler_is_an_answer_too(pair: Pair) -> None:
    answers: list[bytes | MessagingError] = []
    pair.lines[0].ask(BROKEN, b"", answers.append)
    pair.lines[0].ask(99, b"", answers.append)
    pair.carry()
    assert [type(answer) for answer in answers] == [InternalError, NotImplementedHere]
    assert pair.lines[0].is_open


def test_what_nobody_understands_is_overheard(pair: Pair) -> None:
    pair.lines[0].tell(99, b"")
    pair.carry()
    assert pair.lines[1].is_open


def test_who_waits_when_the_line_breaks_learns_that_the_outcome_is_unknown(pair: Pair) -> None:
    answers: list[bytes | MessagingError] = []
    pair.lines[0].ask(LATER, b"", answers.append)
    pair.carry()
    pair.lines[0].end("cut", pair.now)
    assert [type(answer) for answer in answers] == [OutcomeUnknown]
    assert pair.broken == [0]
    pair.lines[0].ask(ECHO, b"", answers.append)
    assert type(answers[1]) is FragmentUnavailable
    pair.kept[0](b"too late for anybody")


def test_nothing_is_asked_before_the_other_end_has_said_who_it_is() -> None:
    pair = Pair()
    answers: list[bytes | MessagingError] = []
    pair.lines[0].ask(ECHO, b"", answers.append)
    assert [type(answer) for answer in answers] == [FragmentUnavailable]


def test_an_end_that_hears_nothing_gives_the_line_up(pair: Pair) -> None:
    for _ in range(SILENCE_MAX // BEAT_EVERY):
        pair.now += BEAT_EVERY
        pair.lines[0].tick(pair.now)
        assert pair.lines[0].is_open
    pair.now += 1
    pair.lines[0].tick(pair.now)
    assert pair.lines[0].is_broken
    assert "silent" in pair.lines[0].fault


def test_beats_keep_a_line_open_on_which_nobody_talks(pair: Pair) -> None:
    for _ in range(100):
        pair.now += BEAT_EVERY
        for line in pair.lines:
            line.tick(pair.now)
        pair.carry()
    assert all(line.is_open for line in pair.lines)


def test_a_node_that_stood_still_does_not_take_the_others_for_dead(pair: Pair) -> None:
    pair.now += 10 * SILENCE_MAX
    pair.lines[0].tick(pair.now)
    assert pair.lines[0].is_open
    pair.now -= 20 * SILENCE_MAX
    pair.lines[0].tick(pair.now)
    assert pair.lines[0].is_open


def test_a_node_that_ends_says_so(pair: Pair) -> None:
    pair.lines[1].say_goodbye()
    pair.carry()
    assert pair.lines[0].is_broken


def test_more_than_the_limit_of_messages_is_not_left_unanswered(pair: Pair) -> None:
    answers: list[bytes | MessagingError] = []
    half = bytes(UNANSWERED_BYTES_MAX // 2)
    for _ in range(2):
        pair.lines[0].ask(LATER, half, answers.append, is_bulk=True)
    assert not answers
    pair.lines[0].ask(LATER, b"x", answers.append, is_bulk=True)
    assert [type(answer) for answer in answers] == [ServerBusy]
    pair.lines[0].ask(LATER, b"x", answers.append)
    pair.carry()
    assert len(pair.kept) == 3
    pair.kept[0](b"")
    pair.carry()
    pair.lines[0].ask(LATER, b"x", answers.append, is_bulk=True)
    assert len(answers) == 2


def test_a_single_message_is_never_too_large_for_the_line(pair: Pair) -> None:
    answers: list[bytes | MessagingError] = []
    pair.lines[0].ask(ECHO, bytes(UNANSWERED_BYTES_MAX + 1), answers.append, is_bulk=True)
    pair.carry()
    assert answers == [bytes(UNANSWERED_BYTES_MAX + 1)]


@pytest.mark.parametrize(
    "hello",
    [
        Hello(0, 2, "shop"),
        Hello(2, 2, "shop"),
        Hello(1, 3, "shop"),
        Hello(1, 2, "other"),
        Hello(1, 2, "shop", 2, 3),
    ],
)
def test_a_node_that_cannot_be_is_refused(hello: Hello) -> None:
    pair = Pair(hello)
    pair.carry()
    assert any(line.is_broken for line in pair.lines)


@pytest.mark.parametrize(
    "garbage",
    [
        HEAD.pack(0, 99, 0, 0),
        HEAD.pack(FRAME_BYTES_MAX + 1, Kind.TELL, 0, 0),
        HEAD.pack(0, Kind.HELLO, 0, 0),
        b"".join(encode_frame(Kind.HELLO, payload=encode_hello(Hello(1, 2, "shop")))),
        HEAD.pack(0, Kind.ANSWER, 0, 77),
    ],
)
def test_garbage_breaks_the_line(pair: Pair, garbage: bytes) -> None:
    pair.lines[0].receive(garbage, pair.now)
    assert pair.lines[0].is_broken
    assert pair.broken == [0]


@given(st.lists(st.tuples(st.sampled_from(Kind), st.binary(max_size=50)), max_size=20), st.integers(1, 30))
def test_frames_survive_being_cut_anywhere(frames: list[tuple[Kind, bytes]], size: int) -> None:
    data = b"".join(
        b"".join(encode_frame(kind, place, place * 1000, payload)) for place, (kind, payload) in enumerate(frames)
    )
    reader = FrameReader()
    found = [frame for start in range(0, len(data), size) for frame in reader.feed(data[start : start + size])]
    assert [(frame.kind, frame.payload) for frame in found] == frames
    assert [frame.request for frame in found] == [place * 1000 for place in range(len(frames))]


@given(st.binary(max_size=200))
def test_no_bytes_break_more_than_the_line(data: bytes) -> None:
    pair = Pair()
    pair.carry()
    pair.lines[0].receive(data, pair.now)
    pair.lines[0].tick(pair.now)


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_error_crosses_a_line(kind: type[MessagingError]) -> None:
    copy = decode_error(encode_error(kind("what is wrong\nand what to do")))
    assert (type(copy), str(copy)) == (kind, "what is wrong\nand what to do")


def test_an_error_of_a_newer_node_is_an_internal_one() -> None:
    assert type(decode_error(b"NewError\ntext")) is InternalError
