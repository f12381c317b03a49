"""On the path of Spark's Python workers in tests: they import pyspark from where it is installed.

Spark puts an archive of pyspark first, which has no compiled modules: each kind of worker would compile them again, at
more than a second a time.
"""

import sys

sys.path[:] = [entry for entry in sys.path if not entry.endswith("pyspark.zip")]
