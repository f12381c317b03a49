"""What other nodes ask of the fragments of this one: frames in, calls on the entities of this node, frames out.

To a gateway at another node this is a *part* of an entity: the fragments whose stores this node serves. It decides nothing: it calls what a
gateway of this node would call, and sends back what is replied. A receiver at another node is a `Consumer` here whose credit is the
demand that its front gave to this part.

What each of the other nodes holds here is its `visitor`.
"""

from collections.abc import Callable, Set
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from twinbus.broker.commands import GetSessionState, ReceiveDeferred, SetSessionState
from twinbus.broker.consumer import SessionLock
from twinbus.broker.entity.entities import Entities
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.queue_entity import QueueEntity
from twinbus.broker.entity.sub_queues import SubQueues
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.broker.entity.transfers import ViaTarget
from twinbus.broker.target import TargetName
from twinbus.broker.transaction import OwnTransaction
from twinbus.clock import Clock, Millis
from twinbus.cluster.lines import values
from twinbus.cluster.lines.columns import ColumnReader, read_messages, unpack
from twinbus.cluster.lines.error_values import encode_error
from twinbus.cluster.lines.holders import Holder, hold_numbers
from twinbus.cluster.lines.line import Answer, Line, Topics
from twinbus.cluster.lines.talk import (
    COUNTED,
    DEMAND,
    QUEUE,
    RECALL,
    Topic,
    decode_send,
    decode_send_again,
    decode_settle,
)
from twinbus.cluster.parts.left_overs import LeftOvers
from twinbus.cluster.parts.visitor import PartReceiver, SendProgress, SettleProgress, Visitor
from twinbus.errors import (
    EntityNotFound,
    MessagingError,
    NotImplementedHere,
    OperationTimeout,
    SessionLockLost,
    TransactionUnknown,
)
from twinbus.store.changes import SubQueue, fragment_parts

_OF_A_SESSION = (GetSessionState, SetSessionState, ReceiveDeferred)


class PartServer:
    """One for each node. `topics`: where its lines look for who answers."""

    def __init__(self, entities: Entities, clock: Clock, topics: Topics) -> None:
        self._entities = entities
        self._clock = clock
        self._visitors: dict[Line, Visitor] = {}
        self._hold_numbers = hold_numbers(clock.now())
        self._left_overs: WeakKeyDictionary[MessageQueue, LeftOvers] = WeakKeyDictionary()
        self._draining: list[Callable[[], None]] = []
        topics.asks |= {
            Topic.SEND: self._send,
            Topic.SEND_AGAIN: self._send_again,
            Topic.SETTLE: self._settle,
            Topic.SETTLE_ALL: self._settle_all,
            Topic.RENEW: self._renew,
            Topic.RECALL: self._recall,
            Topic.CLOSE: self._close,
            Topic.ACCEPT: self._accept,
            Topic.RENEW_SESSION: self._renew_session,
            Topic.ASK: self._ask,
            Topic.CANCEL_SCHEDULED: self._cancel_scheduled,
            Topic.COUNT: self._count,
            Topic.TRANSACT: self._transact,
        }
        topics.tells |= {
            Topic.RECEIVER: self._receiver,
            Topic.DEMAND: self._demand,
            Topic.CANCEL_WAIT: self._cancel_wait,
            Topic.RELEASE: self._release,
        }
        topics.when_broken.append(self._line_broken)

    def tick(self, now: Millis) -> None:
        """A store that hangs does not keep a drain waiting any longer."""
        self._tell_holds_over()
        draining, self._draining = self._draining, []
        for call in draining:
            call()

    def _tell_holds_over(self) -> None:
        for line, visitor in self._visitors.items():
            for hold in [hold for hold, (_, lock) in visitor.holds.items() if not lock.is_held]:
                del visitor.holds[hold]
                line.tell(Topic.HOLD_OVER, COUNTED.pack(hold))

    def left_overs(self, queue: MessageQueue) -> LeftOvers:
        found = self._left_overs.get(queue)
        if found is None:
            found = self._left_overs[queue] = LeftOvers(queue)
        return found

    # What is meant

    def _visitor(self, line: Line) -> Visitor:
        return self._visitors.setdefault(line, Visitor())

    def queue(self, key: int) -> MessageQueue:
        """Raises EntityNotFound."""
        parts = fragment_parts(key)
        entity = self._entities.with_id(parts.entity_id)
        if isinstance(entity, SubQueues) and parts.sub_queue is not SubQueue.TRANSFER:
            return (entity.main, entity.dead_letter, entity.transfer_dead_letter)[
                (SubQueue.MAIN, SubQueue.DEAD_LETTER, SubQueue.TRANSFER_DEAD_LETTER).index(parts.sub_queue)
            ]
        if isinstance(entity, TopicEntity) and parts.sub_queue is SubQueue.TRANSFER_DEAD_LETTER:
            return entity.transfer_dead_letter
        raise EntityNotFound("The messaging entity could not be found: it has been deleted.")

    def _entity(self, path: str) -> QueueEntity | TopicEntity:
        entity = self._entities.find(path)
        if entity is None:
            raise EntityNotFound.at(path)
        return entity

    def way_in(self, name: TargetName) -> QueueEntity | TopicEntity | ViaTarget:
        entity = self._entity(name.path)
        return entity if name.destination is None else entity.via(name.destination)

    # Sending

    def _send(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        run, name, is_together, failed, messages, origins = decode_send(payload)
        target = self.way_in(name)
        if is_together:
            target.placement.send_together(messages, now, _values_to(answer), is_one_try=True, failed=failed)
        else:
            progress = SendProgress(line, run, len(messages), answer)
            target.placement.send_each(messages, now, progress, origins, is_one_try=True, failed=failed)

    def _send_again(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        run, name, is_together, second, messages, origins = decode_send_again(payload)
        placement = self.way_in(name).placement
        if is_together:
            placement.send_together_again(messages, second, now, _values_to(answer))
        else:
            progress = SendProgress(line, run, len(messages), answer)
            placement.send_each_again(messages, second, now, progress, origins)

    def _cancel_scheduled(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        path, numbers = values.decode(payload)
        self._entity(path).cancel_scheduled(numbers, now, _values_to(answer))

    # Receiving

    def _receiver(self, line: Line, payload: bytes, now: Millis) -> None:
        number, key, mode, hold = values.decode(payload)
        visitor = self._visitor(line)
        try:
            queue = self.queue(key)
            session = None if hold is None else visitor.held(hold)
            receiver = PartReceiver(line, visitor, number, queue, mode, session)
            visitor.receivers[number] = receiver
            if not queue.requires_session and queue not in visitor.told_queues:
                visitor.told_queues.add(queue)
                self.left_overs(queue).add(line, lambda ready: self._tell_ready(line, key, ready))
            queue.attach(receiver, now)
            if not queue.requires_session:
                self.left_overs(queue).rearm(line)
                queue.pump(now)
        except MessagingError as error:
            visitor.receivers.pop(number, None)
            line.tell(Topic.LOST, values.encode((number, encode_error(error))))

    def _tell_ready(self, line: Line, key: int, ready: int) -> None:
        """All nodes are told, and each of its share: if all gave demand for everything, most of it would find nothing."""
        line.tell(Topic.READY, QUEUE.pack(key, -(-ready // max(1, len(self._visitors)))))

    def _demand(self, line: Line, payload: bytes, now: Millis) -> None:
        number, demand = unpack(DEMAND, payload)
        receiver = self._visitor(line).receivers.get(number)
        if receiver is not None:
            receiver.credit += demand
            if not receiver.queue.requires_session:
                self.left_overs(receiver.queue).rearm(line)
            receiver.queue.pump(now, receiver)

    def _recall(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        number, waits = unpack(RECALL, payload)
        receiver = self._visitor(line).receivers.get(number)
        if receiver is None:
            answer(COUNTED.pack(0))
            return
        is_answered = False

        def give_back() -> None:
            nonlocal is_answered
            if not is_answered:
                is_answered = True
                unused, receiver.credit = receiver.credit, 0
                if not receiver.queue.requires_session:
                    self.left_overs(receiver.queue).rearm(line)
                answer(COUNTED.pack(unused))

        if waits and receiver.queue.is_reading:
            receiver.queue.after_reading(give_back)
            self._draining.append(give_back)
        else:
            give_back()

    def _close(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        (number,) = unpack(COUNTED, payload)
        visitor = self._visitor(line)
        receiver = visitor.receivers.pop(number, None)
        if receiver is not None:
            visitor.detach(receiver, now)
        answer(b"")

    # Settling

    def _settle(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        run, key, outcome, hold, tokens = decode_settle(payload)
        queue, session = self.queue(key), self._lock(line, hold)
        queue.settle_each(tokens, outcome, now, SettleProgress(line, run, len(tokens), answer), session)

    def _lock(self, line: Line, hold: int | None) -> SessionLock | None:
        found = None if hold is None else self._visitor(line).holds.get(hold)
        return None if found is None else found[1]

    def _settle_all(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        key, tokens, outcome, hold = values.decode(payload)
        self.queue(key).settle(tokens, outcome, now, _values_to(answer), self._lock(line, hold))

    def _renew(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        key, tokens, is_check = values.decode(payload)
        self.queue(key).renew(tokens, now, _values_to(answer), is_check=is_check)

    # Message sessions

    def _accept(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        number, key, request, wait = values.decode(payload)
        queue, visitor = self.queue(key), self._visitor(line)
        is_over = False

        def reply(result: SessionLock | MessagingError) -> None:
            nonlocal is_over
            is_over = True
            visitor.waits.pop(number, None)
            if isinstance(result, MessagingError):
                answer(result)
                return
            hold = self.give_hold(line, queue, result)
            lock = result
            answer(
                values.encode(
                    (hold, lock.session_id, lock.fragment_index, lock.locked_at, lock.locked_until, lock.token)
                )
            )

        waiter = queue.accept_session(request, now + wait, now, reply)
        if request.token is not None:
            self._tell_holds_over()  # it may have taken one over
        if not is_over:
            visitor.waits[number] = (waiter, answer)

    def _cancel_wait(self, line: Line, payload: bytes, now: Millis) -> None:
        (number,) = unpack(COUNTED, payload)
        waiter, answer = self._visitor(line).waits.pop(number, (None, None))
        if waiter is not None and answer is not None:
            waiter.cancel()
            answer(OperationTimeout("Nobody waits for the message session any more."))

    def _release(self, line: Line, payload: bytes, now: Millis) -> None:
        (hold,) = unpack(COUNTED, payload)
        queue, lock = self._visitor(line).holds.pop(hold, (None, None))
        if queue is not None and lock is not None:
            queue.release_session(lock, now)

    def _renew_session(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        key, session_id = values.decode(payload)
        queue = self.queue(key)
        self._check_own_session(line, queue, session_id, now)
        queue.renew_session(session_id, now, _values_to(answer))

    def _check_own_session(self, line: Line, queue: MessageQueue, session_id: str | None, now: Millis) -> None:
        """A gateway asks this of its own connections; here it is asked of all connections of a node."""
        lock = None if session_id is None else queue.session_lock(session_id, now)
        if lock is not None and all(lock is not held for _, held in self._visitor(line).holds.values()):
            raise SessionLockLost(
                f"The message session '{session_id}' is held by a receiver of another connection. Accept it here first."
            )

    def holders(self, nodes: Set[int]) -> dict[SessionLock, Holder]:
        """Of all message sessions that receivers of these nodes hold here."""
        return {
            lock: Holder(line.peer.node, number)
            for line, visitor in self._visitors.items()
            if line.peer is not None and line.peer.node in nodes
            for number, (_, lock) in visitor.holds.items()
        }

    def forget_holds(self, locks: Set[SessionLock]) -> None:
        """These are held at another node from now on."""
        for visitor in self._visitors.values():
            for number in [number for number, (_, lock) in visitor.holds.items() if lock in locks]:
                del visitor.holds[number]

    def give_hold(self, line: Line, queue: MessageQueue, lock: SessionLock) -> int:
        """A receiver at that node holds a session that has moved here. Returns the number of its hold."""
        visitor = self._visitor(line)
        number = next(self._hold_numbers)
        visitor.holds[number] = (queue, lock)
        return number

    # Everything else

    def _ask(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        key, command = values.decode(payload)
        queue = self.queue(key)
        if isinstance(command, _OF_A_SESSION):
            self._check_own_session(line, queue, command.session_id, now)
        queue.ask(command, now, _values_to(answer))

    def _count(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        self._entities.count(values.decode(payload), now, _values_to(answer))

    def _transact(self, line: Line, payload: bytes, now: Millis, answer: Answer) -> None:
        reader = ColumnReader(payload)
        number, operation, home_path, arguments = values.decode(reader.blob())
        transactions, reply = self._visitor(line).transactions, _values_to(answer)
        if operation in ("commit", "rollback"):
            self._discharge(transactions.pop(number, None), now, reply, is_commit=operation == "commit")
            return
        transaction = transactions.setdefault(number, OwnTransaction())
        home = None if home_path is None else self._entity(home_path)
        match operation:
            case "send":
                messages, _ = read_messages(reader)
                transaction.send(self.way_in(arguments), messages, now, reply, home)
            case "settle":
                key, tokens, outcome, hold = arguments
                transaction.settle(self.queue(key), tokens, outcome, now, reply, home, self._lock(line, hold))
            case "cancel":
                name, numbers = arguments
                transaction.cancel_scheduled(self.way_in(name), numbers, now, reply, home)
            case "state":
                key, session_id, state = arguments
                queue = self.queue(key)
                self._check_own_session(line, queue, session_id, now)
                transaction.set_session_state(queue, session_id, state, now, reply, home)
            case _:
                raise NotImplementedHere(
                    f"This node knows no '{operation}' in a transaction. Run the same release on all nodes."
                )

    def _discharge(
        self, transaction: OwnTransaction | None, now: Millis, reply: Callable[[Any], None], *, is_commit: bool
    ) -> None:
        if not is_commit:
            if transaction is not None:
                transaction.rollback()
            reply(None)
        elif transaction is None:
            reply(TransactionUnknown("No transaction of this node has this number. Declare another one."))
        else:
            transaction.commit(now, reply)

    def _line_broken(self, line: Line, now: Millis) -> None:
        visitor = self._visitors.pop(line, None)
        if visitor is None:
            return
        for queue in visitor.told_queues:
            self.left_overs(queue).discard(line)
        visitor.leave(now)


def _values_to(answer: Answer) -> Callable[[Any], None]:
    return partial(_answer_values, answer)


def _answer_values(answer: Answer, result: Any) -> None:
    answer(result if isinstance(result, MessagingError) else values.encode(result))
