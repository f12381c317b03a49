"""On the path of Spark's Python workers in tests, so that they start sooner.

Spark puts an archive of pyspark first, which has no compiled modules: each kind of worker would compile them again, at
more than a second a time. So it is taken away, and pyspark is imported from where it is installed.

Workers are forks of a daemon, one for each kind of worker, which imports next to nothing: each would import pyarrow and
our packages by itself. So the daemon does it, where they are installed.
"""

import sys
from contextlib import suppress
from importlib import import_module

READING, WRITING, SYPHON = (
    "twinbus.pipeline.source.data_source",
    "twinbus.pipeline.sink.writers",
    "twinbus.pipeline.syphon.task",
)
NEEDED = {
    "pyspark.worker": (READING, WRITING, SYPHON),
    "pyspark.sql.worker.create_data_source": (READING,),
    "pyspark.sql.worker.plan_data_source_read": (READING,),
    "pyspark.sql.worker.write_into_data_source": (WRITING,),
}
"""By kind of worker, which is the last word of a daemon's command."""

sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]

if "pyspark.daemon" in sys.orig_argv:
    kind = sys.orig_argv[-1]
    for module in (kind, *NEEDED.get(kind, ())):
        with suppress(ImportError):
            import_module(module)
