"""The Spark session that every job of the pipeline runs in: a name, a master and settings in, a session out.

`local[*]` unless a master is given, here or in SPARK_MASTER. A process that spark-submit started has its master from
there. `sc://HOST:PORT` is a Spark Connect server. Executors that are not on this machine get our packages with it.
"""

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.errors import MessagingError
from twinbus.pipeline.java import choose_java
from twinbus.pipeline.masters import CONNECT_SCHEME, check_master
from twinbus.pipeline.shipping import archive_file, offer_to_driver, ship

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER_DEFAULT = "local[*]"
MASTER_VARIABLE = "SPARK_MASTER"
REMOTE_VARIABLE = "SPARK_REMOTE"  # of Spark itself
LOG_LEVEL_VARIABLE = "TWINBUS_SPARK_LOG_LEVEL"
LOOPBACK = "127.0.0.1"

SETTINGS: Mapping[str, str] = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # Sources and sinks act on the outside world: a second attempt of a slow task would act twice.
    "spark.speculation": "false",
}
LOCAL_SETTINGS: Mapping[str, str] = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.sql.catalogImplementation": "in-memory",
}
QUICK_START: Mapping[str, str] = {
    # The first compiler alone and the simplest collector: a JVM that lives for a minute starts a third sooner, one
    # that works for hours would be slower.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
}
"""Settings for tests and other short work on a local master."""


class SparkMissing(MessagingError):
    """The spark extra is not installed."""


def spark_session(app_name: str, *, master: str | None = None, settings: Mapping[str, str] = {}) -> "SparkSession":
    """A session with the `servicebus` data source, or the one that runs already with these settings put to it.

    Raises SparkMissing, JavaMissing, or ArgumentError or MasterUnavailable for the master, before anything is started.
    """
    require_spark()
    from pyspark.sql import SparkSession

    import pyspark_servicebus

    chosen = choose_master(master, os.environ)
    if chosen is not None:
        check_master(chosen)
    is_local = chosen is not None and chosen.startswith("local")
    is_remote = chosen is not None and chosen.startswith(CONNECT_SCHEME)
    packages = None if is_local else archive_file()
    if chosen is not None and not is_remote:
        prepare_process(is_local=is_local)
        if packages is not None:
            offer_to_driver(packages)
    builder = SparkSession.builder.appName(app_name)
    if chosen is not None:
        builder = builder.remote(chosen) if is_remote else builder.master(chosen)
    # A Connect server has its settings already; what can be set for one session is the SQL part.
    ours = SETTINGS if not is_remote else {name: value for name, value in SETTINGS.items() if ".sql." in name}
    for name, value in {**ours, **(LOCAL_SETTINGS if is_local else {}), **settings}.items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    if packages is not None:
        ship(session, packages)
    pyspark_servicebus.register(session)
    return session


def require_spark() -> None:
    """Raises SparkMissing. For commands, before they import what needs it."""
    if any(find_spec(package) is None for package in ("pyspark", "pyarrow", "pandas")):
        raise SparkMissing("This needs Spark, which is not installed: pip install 'twinbus[spark,jre]'")


def choose_master(given: str | None, environment: Mapping[str, str]) -> str | None:
    """None where spark-submit has started this process and said it already."""
    master = given or environment.get(MASTER_VARIABLE) or environment.get(REMOTE_VARIABLE)
    if master is not None:
        return master
    return None if "PYSPARK_GATEWAY_PORT" in environment else MASTER_DEFAULT


def prepare_process(*, is_local: bool) -> None:
    """The environment that the JVM is going to inherit: its home, and the Python of its workers."""
    os.environ["JAVA_HOME"] = str(choose_java(os.environ).home)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    if is_local:
        # `python3` of the PATH need not be the one that has our packages.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    if "SPARK_HOME" not in os.environ:
        # The Spark of the package has no folder of settings; without one it logs many warnings before they can be switched off.
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "spark_conf"))
