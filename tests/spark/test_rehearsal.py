"""A rehearsal whose backlog is brought home by the Spark job."""

from typing import TYPE_CHECKING

import pytest

from tests.rehearsal.runs import check_survived, rehearse
from twinbus.rehearsal.rehearsal_settings import Engine
from twinbus.rehearsal.script import Fault, FaultKind, Script
from twinbus.rehearsal.spark_drain import SparkDrain

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OUTAGE = Script(3.5, (Fault(FaultKind.KILL, 0.5, 2.0),))


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_an_outage_is_survived_and_the_spark_syphon_brings_the_backlog_home(spark: "SparkSession") -> None:
    check_survived(rehearse(4, SparkDrain(), Engine.SPARK, OUTAGE))
    assert spark.range(3).count() == 3  # the session was not ours to stop
