"""The page on properties names every element that the administration API writes or reads, as the table has it."""

import re
from pathlib import Path
from xml.etree import ElementTree

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
from twinbus.model.entity_properties import FILTER_COUNTS_SINCE
from twinbus.model.properties_page import with_tables

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reference" / "properties.md").read_text()
SECTIONS = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
NAME = re.compile(r"`([A-Za-z0-9]+)`")
LEAF = re.compile(r'leaf\("(\w+)"')
VIEW = View(FILTER_COUNTS_SINCE, "localhost")
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


def test_the_tables_of_entities_are_current() -> None:
    assert with_tables(PAGE) == PAGE, "run: make docs"


def test_every_element_of_an_entity_is_on_the_page() -> None:
    written = [
        elements(write_queue(Entry(1, QUEUE, 0, 0), QUEUE, EntityCounts(), VIEW)),
        elements(write_topic(Entry(1, TOPIC, 0, 0), TOPIC, EntityCounts(), 1, FilterCounts(), VIEW)),
        elements(write_subscription(Entry(1, SUBSCRIPTION, 0, 0), SUBSCRIPTION, EntityCounts(), VIEW)),
    ]
    assert len(written[0]) > 35
    assert set.union(*written) - named("Properties", "Other elements", "Parts of others") == set()


def test_every_element_of_a_rule_is_on_the_page() -> None:
    written = elements(write_rule_description(SQL_RULE)) | elements(write_rule_description(CORRELATION_RULE))
    assert len(written) > 15
    assert written - named("Rules") == set()


def test_every_element_of_the_namespace_is_on_the_page() -> None:
    written = set(LEAF.findall((ROOT / "src" / "twinbus" / "http" / "administration" / "presenter.py").read_text()))
    assert len(written) == 6
    assert written - named("The namespace") == set()
