import json
import tomllib
from datetime import timedelta
from pathlib import Path

import pytest

from twinbus.clock import NEVER
from twinbus.definitions.entity_file import read_entity_file, read_wanted, write_entities
from twinbus.definitions.toml_text import write_toml
from twinbus.definitions.wanted_entities import UNFINISHED, queue_steps
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import (
    MINUTE,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)

RULE = "[[topic]]\nname = 't'\n[[topic.subscription]]\nname = 's'\n[[topic.subscription.rule]]\nname = 'r'\n"
ENTITIES = """
[[queue]]
name = "q"
[[queue.access_rule]]
name = "sender"
rights = ["Send", "Listen"]
primary_key = "{key}"
[[topic]]
name = "t"
[[topic.subscription]]
name = "all"
[[topic.subscription]]
name = "none"
rule = []
[[topic.subscription]]
name = "some"
[[topic.subscription.rule]]
name = "r"
sql = "a = @a"
parameters."@a" = {{ type = "duration", value = "PT5S" }}
"""


def test_toml_and_json_say_the_same(tmp_path: Path) -> None:
    toml, other = tmp_path / "a.toml", tmp_path / "a.json"
    toml.write_text('[[topic]]\nname = "t"\nttl = "never"\n[[topic.subscription]]\nname = "s"\nlock_duration = "2m"\n')
    other.write_text(
        json.dumps({"topic": [{"name": "t", "ttl": "never", "subscription": [{"name": "s", "lock_duration": "PT2M"}]}]})
    )
    wanted = read_wanted([], toml)
    assert wanted == read_wanted([], other)
    assert wanted.topics == (TopicDescription("t", default_time_to_live=NEVER),)
    assert wanted.subscriptions == (SubscriptionDescription("t", "s", lock_duration=2 * MINUTE),)


def test_rules_and_access_rules_are_read_and_written_back(tmp_path: Path) -> None:
    text = ENTITIES.format(key="secret")
    for as_json in (False, True):
        file = tmp_path / ("a.json" if as_json else "a.toml")
        (tmp_path / "given.toml").write_text(text)
        wanted = read_entity_file(tmp_path / "given.toml")
        file.write_text(write_entities(wanted, as_json=as_json, with_keys=True))
        assert read_entity_file(file) == wanted
        assert "secret" in file.read_text()
        assert "secret" not in write_entities(wanted, as_json=as_json, with_keys=False)
    assert wanted.rules["t", "none"] == ()
    assert wanted.rules["t", "some"] == (RuleDescription("r", SqlFilter("a = @a", (("@a", timedelta(seconds=5)),))),)
    assert wanted.rules_of(SubscriptionDescription("t", "all")) is None


def test_any_text_and_number_survives_toml() -> None:
    value = {
        "text": 'a"b\\c\n\t\x00\x7fü\u2028',
        "odd key": [1, -2.5, 1e300, float("inf"), True],
        "in": {"x y": "z"},
        "no": [],
    }
    document = {"one": value, "many": [{"deep": [{"a": 1}, {"a": 2}]}, {"a.b": "c"}]}
    assert tomllib.loads(write_toml(document)) == document


def test_queues_come_after_what_they_forward_to_and_circles_are_closed_at_the_end() -> None:
    first, second = QueueDescription("a", forward_to="B"), QueueDescription("b")
    assert [step.created for step in queue_steps((first, second))] == [second, first]
    back, itself = QueueDescription("b", forward_dead_letters_to="a"), QueueDescription("c", forward_to="c")
    steps = list(queue_steps((first, back, itself)))
    assert [step.wanted for step in steps] == [itself, first, back]
    assert [step.created for step in steps] == [itself, QueueDescription("a", user_metadata=UNFINISHED), back]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[queues]]", "'queues'"),
        ("queue = 5", "list of tables"),
        ("[[queue]]\nlock_duration = '30s'", "needs a name"),
        ("[[queue]]\nname = 'q'\nspeed = 5", "'speed' is unknown"),
        ("[[queue]]\nname = 'q'\nlock_duration = 'long'", "not a duration"),
        ("[[queue", "cannot be read"),
        ("[[queue]]\nname = 'q'\nauthorization_rules = []", "is unknown"),
        ("[[queue]]\nname = 'q'\ntopic = 't'", "'topic' is unknown"),
        ("[[queue]]\nname = 'q'\nmax_size_mb = 'big'", "'max_size_mb' must be a whole number"),
        ("[[queue]]\nname = 'q'\nmax_size_mb = 7", "'max_size_mb': MaxSizeInMegabytes is 7"),
        ("[[queue]]\nname = 'q'\nttl = '1ms'", "'ttl': DefaultMessageTimeToLive"),
        ("[[queue]]\nname = 'q'\nsessions = 1", "'sessions' must be true or false"),
        ("[[queue]]\nname = 'q'\nstatus = 'Off'", "'status' must be one of"),
        ("[[queue]]\nname = 'q'\n[[topic]]\nname = 'Q'", "'Q' is defined twice"),
        ("[[queue]]\nname = 'q'\n[[queue.access_rule]]\nname = 'a'\nrights = ['Fly']", "access_rule 'a': 'rights'"),
        (RULE + "sql = 'a ='", "rule 'r': 'sql'"),
        (RULE + "action = 'GO'", "rule 'r': 'action'"),
        (RULE + "correlation = {}", "rule 'r': 'correlation'"),
        (RULE + "sql = '1=1'\nfilter = 'false'", "'sql' cannot be combined with 'filter'"),
        (RULE + "parameters = { a = 1 }", "'parameters' needs 'sql'"),
        (RULE + "filter = 'maybe'", "'filter' must be"),
        (RULE + "sql = '1=1'\nparameters = { a = 2026-01-01 }", "'a' must be"),
        (RULE + "sql = '1=1'\nparameters = { a = { type = 'duration', value = 'x' } }", "a: A value is 'x'"),
    ],
)
def test_files_that_make_no_sense_are_refused_with_a_reason(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        read_wanted([], file)
