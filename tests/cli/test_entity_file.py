import json
from pathlib import Path

import pytest

from twinbus.cli.entity_file import read_wanted
from twinbus.clock import NEVER
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import MINUTE, SubscriptionDescription, TopicDescription


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[[queues]]", "'queues'"),
        ("queue = 5", "list of tables"),
        ("[[queue]]\nlock_duration = '30s'", "needs a name"),
        ("[[queue]]\nname = 'q'\nspeed = 5", "'speed' is not known"),
        ("[[queue]]\nname = 'q'\nlock_duration = 'long'", "no duration"),
        ("[[queue", "cannot be read"),
        ("[[queue]]\nname = 'q'\nauthorization_rules = []", "not known"),
    ],
)
def test_files_that_make_no_sense_are_refused_with_a_reason(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "a.toml"
    file.write_text(text)
    with pytest.raises(ArgumentError, match=said):
        read_wanted([], file)
