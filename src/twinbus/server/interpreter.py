"""How the interpreter shares its time in a process of the server: that of a namespace, and that of its stores."""

import gc
import sys

# Threads come back from the disk while others compute; at the default of 5 ms each would wait that long.
SWITCH_INTERVAL_S = 0.0002
# Messages are freed by their counts, and nearly nothing is left for the collector; at the default thresholds it walks
# the rows in memory again and again all the same.
COLLECTOR_THRESHOLDS = (100_000, 20, 100)


def tune_interpreter() -> None:
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
