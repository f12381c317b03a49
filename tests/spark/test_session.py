import logging
from typing import TYPE_CHECKING

import pytest
from py4j import java_gateway

from twinbus.cli.pipeline.spark_job import spark_job
from twinbus.pipeline.session import choose_master

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.rule("C4.1")
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


def test_what_py4j_logs_when_a_command_is_interrupted_is_not_reported_as_well(
    spark: "SparkSession", caplog: pytest.LogCaptureFixture
) -> None:
    with spark_job("test", "local[2,4]", None):
        logging.getLogger("py4j.clientserver").error("Exception while sending command.")
        # py4j uses the root logger too.
        told = (logging.ERROR, java_gateway.__file__, 1, "KeyboardInterrupt while sending command.", (), None)
        logging.getLogger().handle(logging.LogRecord("root", *told))
        logging.getLogger().error("what is not of py4j")
    assert [record.message for record in caplog.records] == ["what is not of py4j"]


def test_the_data_source_is_known(spark: "SparkSession") -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match="No option says where the namespace is"):
        spark.read.format("servicebus").load()
