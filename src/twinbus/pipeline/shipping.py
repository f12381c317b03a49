"""Our code on the executors of a cluster: a folder in, an archive out that Spark hands to every Python worker.

Executors need pyarrow, and for the syphon and the replay of dead letters pandas and azure-servicebus; ours are the packages
in the archive. It is not needed where twinbus is installed on every node.
"""

import hashlib
import io
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

from twinbus.pipeline.cache_folder import cache_folder, put

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("twinbus", "pyspark_servicebus")
LEFT_OUT = "__pycache__"
# The same files give the same archive, whenever it is built.
WRITTEN_AT = (1980, 1, 1, 0, 0, 0)


def archive() -> bytes:
    """The packages that executors import, for `addPyFile` and `spark-submit --py-files`."""
    root = Path(__file__).parents[2]
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for package in PACKAGES:
            for source in sorted((root / package).rglob("*")):
                if source.is_file() and LEFT_OUT not in source.parts:
                    entry = zipfile.ZipInfo(source.relative_to(root).as_posix(), WRITTEN_AT)
                    packed.writestr(entry, source.read_bytes(), zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def archive_file() -> Path:
    """The archive in the cache, where it stays: executors that join later fetch it as well. It is named after its
    content: Spark refuses another file of the same name."""
    content = archive()
    file = cache_folder(os.environ) / f"twinbus-{hashlib.sha256(content).hexdigest()[:16]}.zip"
    if not file.exists():
        put(file, content)
    return file


def offer_to_driver(file: Path) -> None:
    """To be called before the JVM starts, for the Python processes that it starts on this machine.

    The one that a streaming source runs in looks for files of the context where Spark puts them on executors only.
    """
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ["PYTHONPATH"] = os.pathsep.join([str(file), *(path for path in paths if path and path != str(file))])


def ship(spark: "SparkSession", file: Path) -> None:
    """Hand our packages to the workers of this session, before the data source is registered with it."""
    if type(spark).__module__.startswith("pyspark.sql.connect."):
        spark.addArtifacts(str(file), pyfile=True)
    else:
        # Artifacts reach no process of a streaming source; files of the context reach those on executors.
        spark.sparkContext.addPyFile(str(file))
