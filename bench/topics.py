"""What sending to a topic costs through the whole broker, by subscriptions and filters: `python -m bench.topics`.

Placement, filters, copies, their rows and a store in memory; no sockets and no disk. Messages have 1 KiB and five
application properties and come in bursts. Each line is the best of several rounds, in microseconds of processor time a
message; a copy that is made costs, a filter that does not match should not.
"""

import time
from collections.abc import Iterable

from bench.filters import correlation_rules, sql_rules
from twinbus.amqp.codec.sections import DataBody, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Int
from twinbus.broker.commands import Purge
from twinbus.broker.entity.topic_entity import TopicEntity
from twinbus.model.descriptions import FalseFilter, RuleDescription, SubscriptionDescription, TopicDescription
from twinbus.model.message import Message, read_message
from twinbus.testing.simulation import Simulation

BURST = 64
ROUND_COUNT = 5
SUBSCRIPTION_COUNT = 2_000


def burst(count: int) -> list[Message]:
    user = {"color": "red", "quantity": Int(10), "region": "region-77", "priority": "high", "weight": 1.5}
    sections = Sections(
        properties=MessageProperties(message_id="id", subject="order", correlation_id="tenant-77"),
        application_properties=user,
        body=DataBody((b"x" * 1_024,)),
    )
    payload = encode_sections(sections)
    return [read_message(payload, lambda: "") for _ in range(count)]


class Topic:
    """A topic of an ordinary namespace with this many subscriptions, and rules spread over them."""

    def __init__(self, subscription_count: int, rules: Iterable[RuleDescription]) -> None:
        self.sim = Simulation()
        self.entity: TopicEntity = self.sim.topic(TopicDescription("t"))
        names = [f"s{number}" for number in range(subscription_count)]
        for name in names:
            self.sim.subscription(SubscriptionDescription("t", name), [])
        for number, rule in enumerate(rules):
            self.sim.entities.add_rule("t", names[number % subscription_count], rule)

    def copies(self) -> int:
        return sum(each.main.counts().active for each in self.entity.subscriptions.values())

    def purge(self) -> None:
        for subscription in self.entity.subscriptions.values():
            if subscription.main.counts().active:
                self.sim.ask(subscription.main, Purge(1_000_000, self.sim.now))


def best_micros(topic: Topic, burst_size: int) -> tuple[float, float]:
    """Processor time a message, and copies a message."""
    messages = burst(burst_size)
    best, copies = float("inf"), 0.0
    for _ in range(ROUND_COUNT):
        started = time.process_time()
        for _ in range(BURST // burst_size):
            topic.sim.send(topic.entity, *messages)
        best = min(best, time.process_time() - started)
        copies = topic.copies() / BURST
        topic.purge()
    return best / BURST * 1e6, copies


def report(label: str, subscription_count: int, rules: Iterable[RuleDescription]) -> None:
    topic = Topic(subscription_count, rules)
    alone, _ = best_micros(topic, 1)
    together, copies = best_micros(topic, BURST)
    print(f"{label:<58} {alone:>10.1f} {together:>10.1f} {copies:>8.1f}")


def main() -> None:
    print(f"{'a send to a topic':<58} {'us, alone':>10} {'us, burst':>10} {'copies':>8}")
    for count in (1, 10, 100):
        report(f"{count:,} subscriptions, all match", count, [RuleDescription("r")] * count)
    for count in (1, 100, SUBSCRIPTION_COUNT):
        report(f"{count:,} subscriptions, none matches", count, [RuleDescription("r", FalseFilter())] * count)
    for count in (100, 10_000, 100_000):
        report(f"{count:,} correlation filters, one matches", SUBSCRIPTION_COUNT, correlation_rules(count))
    for count in (1, 10, 100, 1_000, 2_000):
        report(
            f"{count:,} SQL filters with an equality, one matches at most",
            SUBSCRIPTION_COUNT,
            sql_rules(count, "region = 'region-{}' AND quantity > 5"),
        )
        report(
            f"{count:,} SQL filters of comparisons, none matches",
            SUBSCRIPTION_COUNT,
            sql_rules(count, "quantity > {} AND weight < 1"),
        )


if __name__ == "__main__":
    main()
