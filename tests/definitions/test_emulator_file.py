import json
from pathlib import Path
from typing import Any

import pytest

from twinbus.definitions.entity_file import read_entity_file
from twinbus.errors import ArgumentError
from twinbus.model.descriptions import MINUTE, CorrelationFilter, QueueDescription, SqlFilter


def config(**namespace: Any) -> dict[str, Any]:
    return {"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", **namespace}], "Logging": {"Type": "File"}}}


def with_rule(properties: dict[str, Any]) -> dict[str, Any]:
    subscription = {"Name": "s", "Rules": [{"Name": "r", "Properties": properties}]}
    return config(Topics=[{"Name": "t", "Subscriptions": [subscription]}])


def written(folder: Path, document: object) -> Path:
    file = folder / "Config.json"
    file.write_text(json.dumps(document))
    return file


def test_properties_have_the_names_of_the_api_and_empty_texts_stand_for_nothing(tmp_path: Path) -> None:
    given = {"LockDuration": "PT2M", "RequiresSession": True, "ForwardTo": "", "MaxDeliveryCount": 3}
    wanted = read_entity_file(written(tmp_path, config(Queues=[{"Name": "queue.1", "Properties": given}])))
    assert wanted.queues == (
        QueueDescription("queue.1", lock_duration=2 * MINUTE, requires_session=True, max_delivery_count=3),
    )


@pytest.mark.parametrize("kind", ["Correlation", "Sql", None])
def test_a_correlation_filter_is_one_whatever_the_type_says(tmp_path: Path, kind: str | None) -> None:
    given = {"FilterType": kind, "CorrelationFilter": {"Label": "hot", "To": "", "Properties": {"size": 5}}}
    wanted = read_entity_file(written(tmp_path, with_rule(given)))
    assert wanted.rules["t", "s"][0].filter == CorrelationFilter(label="hot", properties=(("size", 5),))


def test_the_type_decides_between_two_filters(tmp_path: Path) -> None:
    given = {"FilterType": "Sql", "SqlFilter": {"SqlExpression": "a = 1"}, "CorrelationFilter": {"Label": "hot"}}
    assert read_entity_file(written(tmp_path, with_rule(given))).rules["t", "s"][0].filter == SqlFilter("a = 1")
    given["FilterType"] = "Correlation"
    found = read_entity_file(written(tmp_path, with_rule(given))).rules["t", "s"][0].filter
    assert found == CorrelationFilter(label="hot")


def test_a_subscription_without_rules_keeps_the_default_one(tmp_path: Path) -> None:
    topics = [{"Name": "t", "Subscriptions": [{"Name": "s", "Rules": []}]}]
    assert read_entity_file(written(tmp_path, config(Topics=topics))).rules == {}


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (config(Queues=[{"Name": "q", "Properties": {"LockDuration": "PT6M"}}]), "Queues 'q'.*LockDuration"),
        (config(Queues=[{"Name": "q", "Properties": {"Speed": 5}}]), "Queues 'q'.*'Speed' is unknown"),
        (config(Queues=[{"Name": "q", "Properties": {"MaxDeliveryCount": "x"}}]), "Queues 'q'.*MaxDeliveryCount"),
        (config(Queues=[{"Properties": {}}]), "'Name'"),
        (config(Queues=[{"Name": "q"}, {"Name": "Q"}]), "'Q' is defined twice"),
        (with_rule({"FilterType": "Magic", "SqlFilter": {"SqlExpression": "a = 1"}}), "'FilterType'"),
        (with_rule({"FilterType": "Sql"}), "'SqlFilter'"),
        (with_rule({"SqlFilter": {"SqlExpression": "a ="}}), "Rules 'r'.*'SqlFilter'"),
        (with_rule({"CorrelationFilter": {"Label": "x" * 1025}}), "Rules 'r'.*'CorrelationFilter'"),
        (with_rule({"SqlFilter": {"SqlExpression": "1=1"}, "Action": {"SqlExpression": "GO"}}), "'Action'"),
        ({"UserConfig": {"Namespaces": []}}, "'Namespaces' contains 0"),
        ({"UserConfig": 5}, "'UserConfig'"),
    ],
)
def test_mistakes_are_reported_with_file_and_key(tmp_path: Path, document: object, said: str) -> None:
    file = written(tmp_path, document)
    with pytest.raises(ArgumentError, match=said) as refused:
        read_entity_file(file)
    assert str(file) in str(refused.value)
