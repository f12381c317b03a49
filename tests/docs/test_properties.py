"""The page on properties names every element that the administration API writes or reads."""

import re
from pathlib import Path
from xml.etree import ElementTree

from twinbus.http.api_version import FILTER_COUNTS_SINCE
from twinbus.http.atom.entity_reader import QUEUE_ELEMENTS, SUBSCRIPTION_ELEMENTS, TOPIC_ELEMENTS
from twinbus.http.atom.entity_writer import View, write_queue, write_subscription, write_topic
from twinbus.http.atom.rule_xml import write_rule_description
from twinbus.management.catalog import Entry
from twinbus.management.counts import EntityCounts
from twinbus.management.quotas import FilterCounts
from twinbus.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    QueueDescription,
    Right,
    RuleDescription,
    SqlAction,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "properties.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAME = re.compile(r"`([A-Za-z0-9]+)`")
LEAF = re.compile(r'leaf\("(\w+)"')
VIEW = View(FILTER_COUNTS_SINCE, 256, "sb://localhost/")
ACCESS = (AuthorizationRule("send", "k", "k", frozenset({Right.SEND})),)
PAIRS = (("size", 1),)
QUEUE = QueueDescription(
    "q", authorization_rules=ACCESS, forward_to="a", forward_dead_letters_to="b", user_metadata="m"
)
TOPIC = TopicDescription("t", authorization_rules=ACCESS, user_metadata="m")
SUBSCRIPTION = SubscriptionDescription("t", "s", forward_to="a", forward_dead_letters_to="b", user_metadata="m")
SQL_RULE = RuleDescription("r", SqlFilter("size = @size", PAIRS), SqlAction("SET size = 1", PAIRS))
CORRELATION_RULE = RuleDescription("r", CorrelationFilter("a", "b", "c", "d", "e", "f", "g", "h", PAIRS))


def named(*sections: str) -> set[str]:
    """What stands in the first column of a section's table, or at its head."""
    lines = [line for section in sections for line in SECTIONS[section].splitlines()]
    rows = [line.split("|")[1] if line.startswith("|") else line for line in lines]
    return {name for row in rows for name in NAME.findall(row)}


def elements(xml: str) -> set[str]:
    return {element.tag.rpartition("}")[2] for element in ElementTree.fromstring(xml).iter()}


def test_every_element_of_a_queue_is_on_the_page() -> None:
    written = elements(write_queue(Entry(1, QUEUE, 0, 0), QUEUE, EntityCounts(), VIEW))
    assert len(written) > 35
    assert (written | QUEUE_ELEMENTS.keys()) - named("Queues", "Parts of others") == set()


def test_every_element_of_a_topic_is_on_the_page() -> None:
    written = elements(write_topic(Entry(1, TOPIC, 0, 0), TOPIC, EntityCounts(), 1, FilterCounts(), VIEW))
    assert (written | TOPIC_ELEMENTS.keys()) - named("Topics", "Parts of others") == set()


def test_every_element_of_a_subscription_is_on_the_page() -> None:
    written = elements(write_subscription(Entry(1, SUBSCRIPTION, 0, 0), SUBSCRIPTION, EntityCounts(), VIEW))
    assert (written | SUBSCRIPTION_ELEMENTS.keys()) - named("Subscriptions", "Parts of others") == set()


def test_every_element_of_a_rule_is_on_the_page() -> None:
    written = elements(write_rule_description(SQL_RULE)) | elements(write_rule_description(CORRELATION_RULE))
    assert len(written) > 15
    assert written - named("Rules") == set()


def test_every_element_of_the_namespace_is_on_the_page() -> None:
    written = set(LEAF.findall((ROOT / "src" / "twinbus" / "http" / "administration" / "presenter.py").read_text()))
    assert len(written) == 6
    assert written - named("The namespace") == set()


def test_what_can_be_set_is_not_called_reported_or_fixed() -> None:
    for section, known in (
        ("Queues", QUEUE_ELEMENTS),
        ("Topics", TOPIC_ELEMENTS),
        ("Subscriptions", SUBSCRIPTION_ELEMENTS),
    ):
        rows = [line.split("|") for line in SECTIONS[section].splitlines() if line.startswith("| `")]
        words = {name: row[2].strip() for row in rows for name in NAME.findall(row[1])}
        settable = {"AuthorizationRules", "DefaultRuleDescription", *known}
        assert {
            name for name, word in words.items() if (word not in ("reported", "fixed")) != (name in settable)
        } == set()
