from typing import TYPE_CHECKING

import pytest

from twinbus.pipeline.session import choose_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("given", "environment", "chosen"),
    [
        (None, {}, "local[*]"),
        (None, {"SPARK_MASTER": "spark://host:7077"}, "spark://host:7077"),
        ("local[2]", {"SPARK_MASTER": "spark://host:7077"}, "local[2]"),
        (None, {"PYSPARK_GATEWAY_PORT": "1"}, None),
        (None, {"SPARK_REMOTE": "sc://host"}, "sc://host"),
        ("yarn", {"PYSPARK_GATEWAY_PORT": "1"}, "yarn"),
    ],
)
def test_a_master_that_was_given_is_honoured(
    given: str | None, environment: dict[str, str], chosen: str | None
) -> None:
    assert choose_master(given, environment) == chosen


def test_times_are_in_utc(spark: "SparkSession") -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"


def test_the_data_source_is_known(spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="No option says where the namespace is"):
        spark.read.format("servicebus").load()
