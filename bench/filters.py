"""What matching a message costs, by the number and kind of filters: `python -m bench.filters`.

The message has five application properties and is decoded again for every match, as it is in a
topic. Each line is the best of several rounds, in microseconds a message.
"""

import time
import timeit
from collections.abc import Callable, Iterable

from twinbus.amqp.codec.sections import DataBody, MessageProperties, Sections, encode_sections
from twinbus.amqp.codec.types import Int
from twinbus.model.descriptions import CorrelationFilter, RuleDescription, SqlAction, SqlFilter, TrueFilter
from twinbus.model.message import read_message
from twinbus.model.rules.index import RuleIndex
from twinbus.model.rules.view import FilterView

ROUND_SECONDS = 0.05
ROUND_COUNT = 5
SUBSCRIPTION_COUNT = 2_000


def content() -> bytes:
    user = {"color": "red", "quantity": Int(10), "region": "region-77", "priority": "high", "weight": 1.5}
    sections = Sections(
        properties=MessageProperties(message_id="id", subject="order", correlation_id="tenant-77"),
        application_properties=user,
        body=DataBody((b"x" * 1_024,)),
    )
    return read_message(encode_sections(sections), lambda: "").content


def best_micros(run: Callable[[], object]) -> float:
    """In processor time, so that a busy machine shows less."""
    started, count = time.process_time(), 0
    while time.process_time() - started < ROUND_SECONDS:
        run()
        count += 1
    return min(timeit.repeat(run, timer=time.process_time, number=count, repeat=ROUND_COUNT)) / count * 1e6


def index_of(rules: Iterable[RuleDescription]) -> tuple[RuleIndex[int], float]:
    """The rules spread over the subscriptions, and the microseconds that adding one took."""
    index: RuleIndex[int] = RuleIndex()
    count, started = 0, time.perf_counter()
    for count, rule in enumerate(rules, 1):
        index.add_rule(count % SUBSCRIPTION_COUNT, rule)
    return index, (time.perf_counter() - started) / max(count, 1) * 1e6


def report(label: str, rules: Iterable[RuleDescription]) -> None:
    index, adding = index_of(rules)
    message = content()
    copies = len(index.match(FilterView(message)).copies)
    matching = best_micros(lambda: index.match(FilterView(message)))
    print(f"{label:<58} {matching:>10.1f} {copies:>8} {adding:>10.1f}")


def correlation_rules(count: int) -> Iterable[RuleDescription]:
    return (RuleDescription(f"r{n}", CorrelationFilter(correlation_id=f"tenant-{n}")) for n in range(count))


def property_rules(count: int) -> Iterable[RuleDescription]:
    for n in range(count):
        pairs = (("color", "red"), ("region", f"region-{n}"))
        yield RuleDescription(f"r{n}", CorrelationFilter(label="order", properties=pairs))


def sql_rules(count: int, text: str, action: SqlAction | None = None) -> Iterable[RuleDescription]:
    return (RuleDescription(f"r{n}", SqlFilter(text.format(n)), action) for n in range(count))


def action_cost() -> None:
    rule = RuleDescription(
        "r", TrueFilter(), SqlAction("SET quantity = quantity / 2; REMOVE priority; SET sys.Label = 'x'")
    )
    index, _ = index_of([rule])
    message = content()
    action = index.match(FilterView(message)).copies[0].action
    assert action is not None
    print(
        f"{'applying an action of three statements':<58} {best_micros(lambda: action.apply(FilterView(message))):>10.1f}"
    )


def comparison_cost() -> None:
    index, _ = index_of(sql_rules(1, "quantity > {}"))
    view = FilterView(content())
    index.match(view)
    print(f"{'one comparison, properties decoded already':<58} {best_micros(lambda: index.match(view)):>10.1f}")


def main() -> None:
    print(f"{'filters of a topic':<58} {'us/message':>10} {'copies':>8} {'us/adding':>10}")
    report("no rule", [])
    for count in (1, 100, 2_000):
        report(f"{count:,} true filters", (RuleDescription(f"r{n}") for n in range(count)))
    for count in (1, 100, 10_000, 100_000):
        report(f"{count:,} correlation filters on CorrelationId", correlation_rules(count))
        report(f"{count:,} correlation filters on Label and two properties", property_rules(count))
    for count in (1, 10, 100, 1_000, 2_000):
        report(f"{count:,} SQL filters: quantity > n", sql_rules(count, "quantity > {} AND weight < 1"))
        report(
            f"{count:,} SQL filters: region = n AND quantity > 5",
            sql_rules(count, "region = 'region-{}' AND quantity > 5"),
        )
    report("2,000 SQL filters of the same text", sql_rules(2_000, "quantity > 5"))
    comparison_cost()
    action_cost()


if __name__ == "__main__":
    main()
