"""A topic: what is sent to it is copied to every subscription whose rules match (contract A16)."""

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Final
from weakref import ref

from twinbus.broker.entity import fan_out
from twinbus.broker.entity.forwarding import Find
from twinbus.broker.entity.message_queue import MessageQueue
from twinbus.broker.entity.sub_queues import SubQueues, brokers_of, make_fragments
from twinbus.broker.entity.topic_placement import TopicPlacement
from twinbus.broker.entity.topic_room import TopicRoom
from twinbus.broker.entity.transfers import Transfers, ViaTarget
from twinbus.broker.entity_settings import EntitySettings, subscription_settings, topic_settings
from twinbus.broker.fragment.decision import Decision
from twinbus.broker.fragment.fragment import Fragment
from twinbus.broker.fragment.fragment_group import counts_of
from twinbus.broker.fragment.tally import Tally
from twinbus.broker.fragment.upkeep import DUE_COUNT_MAX, keep_up_with
from twinbus.broker.message_broker import MessageBroker
from twinbus.broker.operations import by_number
from twinbus.broker.operations.asked_queue import WaysOut
from twinbus.broker.operations.steps import run
from twinbus.broker.replies import NO_COUNTS, Holdings, QueueCounts, Reply, SendReply
from twinbus.broker.target import TargetName
from twinbus.broker.wakeups import LongSteps
from twinbus.clock import Millis
from twinbus.errors import EntityNotFound, FragmentUnavailable, MessagingError
from twinbus.model.descriptions import RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message, read_content
from twinbus.model.paths import path_key
from twinbus.model.rules.index import RuleIndex
from twinbus.model.rules.view import FilterView
from twinbus.store.changes import StoredMessage, SubQueue

DUE_BYTES_MAX = 4 << 20
"""Of due messages and of their copies with actions, in one commit: more might not fit on a disk that fills up, and would be due again.
Copies without actions share what is written of them if that is much."""
FULL_PAUSE: Millis = 1_000


class SubscriptionEntity(SubQueues):
    def __init__(
        self, entity_id: int, description: SubscriptionDescription, topic: "TopicEntity", find: Find, now: Millis
    ) -> None:
        settings = subscription_settings(description, topic.description)
        super().__init__(entity_id, settings, [fragment.broker for fragment in topic.main_fragments], find, now)
        self.set_transfers(topic.settings, topic.transfers.fragments)
        self.description = description
        # It has this. Without circles nothing of a topic that was deleted is left to the collector.
        self._topic_ref = ref(topic)

    @property
    def topic(self) -> "TopicEntity":
        topic = self._topic_ref()
        assert topic is not None, "whoever asks has it, or has found this there"
        return topic

    def fragment(self, index: int) -> Fragment:
        return self.main.fragments[index]

    def follow_description(self, description: SubscriptionDescription, now: Millis) -> None:
        self.description = description
        self.follow(subscription_settings(description, self.topic.description), now)

    @property
    def rules(self) -> dict[str, RuleDescription]:
        """By `path_key`, in the order of adding."""
        return {path_key(rule.name): rule for rule in self.topic.rules.rules(self)}


class TopicEntity:
    is_topic: Final = True

    def __init__(
        self,
        entity_id: int,
        description: TopicDescription,
        brokers: Sequence[MessageBroker],
        find: Find,
        now: Millis,
        first_store: int,
    ) -> None:
        self.id = entity_id
        self.description = description
        self.first_store = first_store
        self.settings = settings = topic_settings(description)
        settings.alive_at = now
        own_brokers = brokers_of(settings, brokers, first_store)
        keep_up = partial(_keep_up_if_there, ref(self))
        self.main_fragments = make_fragments(entity_id, SubQueue.MAIN, settings, own_brokers, keep_up)
        undelivered = make_fragments(entity_id, SubQueue.TRANSFER_DEAD_LETTER, settings, own_brokers)
        transfer = make_fragments(
            entity_id, SubQueue.TRANSFER, settings, own_brokers, transfer_dead_letters=undelivered
        )
        self.fragments = [*self.main_fragments, *undelivered, *transfer]
        self.transfer_dead_letter = MessageQueue(settings, undelivered, find)
        self.transfers = Transfers(settings, transfer, find)
        self.transfer_dead_letter.set_ways_out(WaysOut(settings, None, transfer))
        self.subscriptions: dict[str, SubscriptionEntity] = {}  # by `path_key`
        self.rules: RuleIndex[fan_out.Subscriber] = RuleIndex()
        # They are given what they need, and not this, which has them.
        rules, subscriptions = self.rules, self.subscriptions
        self._room = room = TopicRoom(
            partial(_parts_of, subscriptions),
            partial(_copy_count, rules, settings),
            partial(_copies_max, rules, subscriptions),
        )
        self.placement = TopicPlacement(
            settings,
            self.main_fragments,
            partial(fan_out.stage, rules, room),
            partial(fan_out.copy_in_steps, rules, room),
            room,
            partial(_cost_of_message, rules, subscriptions),
        )

    @property
    def name(self) -> TargetName:
        return TargetName(self.settings.path)

    @property
    def last_used_at(self) -> Millis:
        return self.settings.last_used_at

    def is_idle(self, now: Millis, duration: Millis) -> bool:
        """Whether nobody has sent to it, or used one of its subscriptions, for this long, and no message waits here."""
        if not self.settings.is_unused(now, duration) or self.transfer_dead_letter.is_in_use:
            return False
        is_waited_for = self.counts().scheduled > 0 or self.transfer_counts().active > 0
        return not is_waited_for and all(each.is_idle(now, duration) for each in self.subscriptions.values())

    def close(self) -> None:
        """The topic has been deleted, and its subscriptions with it."""
        self.transfer_dead_letter.close(EntityNotFound.at(self.settings.path))
        for subscription in self.subscriptions.values():
            subscription.close()

    def counts(self) -> QueueCounts:
        """Of the topic itself, which holds scheduled messages only; subscriptions count their own."""
        return counts_of(self.main_fragments)

    def transfer_counts(self) -> QueueCounts:
        return counts_of(self.transfers.fragments)

    def holdings(self) -> Holdings:
        own, transfer = self.counts(), self.transfer_counts()
        return Holdings(own, NO_COUNTS, transfer, self.transfer_dead_letter.counts(), self.last_used_at)

    def via(self, destination: str) -> ViaTarget:
        """Takes messages here that are handed on to another entity."""
        return self.transfers.target(destination)

    def send_each(
        self, messages: Sequence[Message], now: Millis, reply: SendReply, origins: Sequence[int] | None = None
    ) -> None:
        """As that of a queue; each message and all of its copies are one commit."""
        self.placement.send_each(messages, now, reply, origins)

    def send_batch(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """As that of a queue; the numbers are the topic's."""
        self.placement.send_together(messages, now, reply)

    def schedule(self, messages: Sequence[Message], now: Millis, reply: Reply[list[int]]) -> None:
        """As `send_batch`; each is copied to the subscriptions that match at its `scheduled_at`."""
        self.placement.send_together(messages, now, reply)

    def cancel_scheduled(self, numbers: Sequence[int], now: Millis, reply: Reply[None]) -> None:
        """Remove scheduled messages, all of them or MessageNotFound."""
        run(by_number.cancel(self.main_fragments, numbers), now, reply)

    def follow_description(self, description: TopicDescription, now: Millis) -> None:
        self.description = description
        self.settings.follow(topic_settings(description))
        for subscription in self.subscriptions.values():
            subscription.settings.follow(subscription_settings(subscription.description, description))

    def add_subscription(self, subscription: SubscriptionEntity, rules: Iterable[RuleDescription]) -> None:
        """All rules or none: what does not parse raises ArgumentError."""
        try:
            for rule in rules:
                self.rules.add_rule(subscription, rule)
        except MessagingError:
            for _ in self.rules.remove_subscription(subscription):
                pass
            raise
        self.subscriptions[path_key(subscription.description.name)] = subscription

    def remove_subscription(self, subscription: SubscriptionEntity) -> None:
        """Its fragments are gone already, so that no copies are made for it, whatever matches."""
        self.subscriptions.pop(path_key(subscription.description.name), None)
        steps = self.rules.remove_subscription(subscription)
        # Most have a few rules, which one step removes.
        if next(steps, True) is None:
            self.main_fragments[0].broker.long_work.add(_rest_of(steps))

    def keep_up(self, fragment: Fragment, now: Millis) -> None:
        keep_up_with(fragment, now, self._publish_due, min(DUE_COUNT_MAX, self.placement.count_at_once))

    def _publish_due(self, fragment: Fragment, rows: list[StoredMessage], now: Millis) -> bool:
        """Scheduled messages are copied when they are due; the topic itself keeps nothing of them."""
        if self.placement.is_busy(fragment.index) or self.placement.is_long(len(rows)):
            # In the line, or senders who are always there would keep them from their subscriptions.
            let_in = fragment.keep_out([row.sequence_number for row in rows])
            self.placement.wait(fragment.index, partial(self._publish_in_turn, fragment, fragment.tally, rows, let_in))
            return False
        chosen = self._due_together(fragment, rows, now)
        if chosen:
            self._publish_at_once(fragment, chosen, now)
        return bool(chosen)

    def _publish_in_turn(
        self, fragment: Fragment, tally: Tally, rows: list[StoredMessage], let_in: Callable[[], None], now: Millis
    ) -> LongSteps:
        """Nobody else has changed them meanwhile; if the store was lost, they will be found again."""
        try:
            if fragment.tally is not tally or not fragment.is_available:
                return
            chosen = self._due_together(fragment, rows, now)
            is_published = bool(chosen)
            if chosen and self.placement.is_long(len(chosen)):
                is_published = yield from self._publish_in_steps(fragment, chosen, now)
            elif chosen:
                self._publish_at_once(fragment, chosen, now)
            if is_published:
                fragment.settings.alive_at = now
                fragment.agenda.will_be_due(now)  # there may be more
        except FragmentUnavailable:
            return
        finally:
            let_in()
        self.keep_up(fragment, now)
        fragment.wake()

    def _publish_at_once(self, fragment: Fragment, rows: Sequence[StoredMessage], now: Millis) -> None:
        decision = Decision(fragment)
        decision.remove(rows)
        first_number = fragment.tally.take_numbers(len(rows))
        messages = [read_content(row.content) for row in rows]
        publishing = fan_out.at_once(self._room, messages)(self.rules, self._room, decision, first_number, now)
        for message, row in zip(messages, rows, strict=True):
            publishing.add(message, row.enqueued_sequence_number)
        publishing.decide()
        decision.commit()

    def _publish_in_steps(
        self, fragment: Fragment, rows: list[StoredMessage], now: Millis
    ) -> Generator[None, Millis, bool]:
        """False if there is no room for them in the end. Raises FragmentUnavailable if the store was lost in between."""
        decision = Decision(fragment)
        messages, origins = [read_content(row.content) for row in rows], [row.enqueued_sequence_number for row in rows]
        copies = yield from fan_out.copy_due_in_steps(self.rules, self._room, decision, messages, now, origins)
        copies.check()
        if not self._due_together(fragment, rows, now):
            return False
        decision.remove(rows)
        copies.decide()
        decision.commit()
        return True

    def _due_together(self, fragment: Fragment, rows: list[StoredMessage], now: Millis) -> list[StoredMessage]:
        """Those of them to copy in one commit, at least one if there is room; it will be looked for the others."""
        is_full = fragment.broker.is_full
        if is_full and any(part.tally.active_count for part in _parts_of(self.subscriptions, fragment.index)):
            # Only those who receive make room. They have something to receive, and get more when they have taken that.
            fragment.agenda.will_be_due(now + FULL_PAUSE)
            return []
        sizes = accumulate([len(row.content) * (1 + self.rules.acting_count) for row in rows])
        count = 1 if is_full else max(1, sum([size <= DUE_BYTES_MAX for size in sizes]))
        if count < len(rows):
            fragment.agenda.will_be_due(now)
        return rows[:count]


def _keep_up_if_there(topic: "ref[TopicEntity]", fragment: Fragment, now: Millis) -> None:
    found = topic()
    if found is not None:
        found.keep_up(fragment, now)


def _parts_of(subscriptions: Mapping[str, SubscriptionEntity], index: int) -> list[Fragment]:
    return [subscription.fragment(index) for subscription in subscriptions.values()]


def _copy_count(rules: RuleIndex[fan_out.Subscriber], settings: EntitySettings, message: Message) -> int:
    return len(rules.match(FilterView(message.content, 0, settings.last_used_at)).copies)


def _copies_max(rules: RuleIndex[fan_out.Subscriber], subscriptions: Mapping[str, SubscriptionEntity]) -> int:
    return len(subscriptions) + rules.acting_count


def _cost_of_message(rules: RuleIndex[fan_out.Subscriber], subscriptions: Mapping[str, SubscriptionEntity]) -> int:
    return fan_out.cost_of_message(rules, len(subscriptions))


def _rest_of(steps: Iterator[None]) -> LongSteps:
    yield
    for _ in steps:
        yield
