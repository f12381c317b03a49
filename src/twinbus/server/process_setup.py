"""What both processes of a server (a namespace, and its messaging stores) do first: configure logs, limits and the interpreter.

Log lines have fields: `log.info("listening", extra={"fields": {...}})` becomes one logfmt or JSON line on stderr.
"""

import ctypes
import gc
import json
import logging
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from twinbus.server.listening.admission import raise_descriptor_limit
from twinbus.server.server_settings import LogFormat, LogLevel

# Threads come back from the disk while others compute; at the default of 5 ms each would wait that long.
SWITCH_INTERVAL_S = 0.0002
# Reference counts free messages, so the collector finds next to nothing; at the default thresholds it would still walk
# all rows in memory again and again. One look at 10,000 new objects takes a millisecond, which nobody feels.
COLLECTOR_THRESHOLDS = (10_000, 200, 100)
# The GNU allocator gives memory at the end of its heap back as soon as 128 KiB are free, and maps every piece of that size by
# itself. A burst of messages is larger: it would get its memory from the system each time, page by page, cleared before use.
M_TRIM_THRESHOLD, FREE_BYTES_KEPT = -1, 16 << 20
M_MMAP_THRESHOLD, MAPPED_BYTES_MIN = -3, 4 << 20


def set_up_process(log_format: LogFormat, log_level: LogLevel = LogLevel.INFO, node: int | None = None) -> None:
    """`node`: which of several processes of a namespace this is; its log lines say so."""
    configure_logs(log_format, log_level, node)
    raise_descriptor_limit()
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    keep_free_memory()


def keep_free_memory() -> None:
    """Let the allocator keep a few megabytes for the next burst. Others than the GNU one have no such call, and need none."""
    if (tune := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:
        tune(M_TRIM_THRESHOLD, FREE_BYTES_KEPT)
        tune(M_MMAP_THRESHOLD, MAPPED_BYTES_MIN)


class FieldFormatter(logging.Formatter):
    """Time, level, logger, event and the fields of one record."""

    def __init__(self, node: int | None = None) -> None:
        super().__init__()
        self._node = node

    def fields_of(self, record: logging.LogRecord) -> dict[str, object]:
        fields: dict[str, object] = {
            "ts": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
        }
        if self._node is not None:
            fields["node"] = self._node
        extra = getattr(record, "fields", None)
        if isinstance(extra, Mapping):
            fields.update(extra)
        if record.exc_info:
            fields["error"] = self.formatException(record.exc_info)
        return fields


class LogfmtFormatter(FieldFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return " ".join(f"{name}={_quoted(value)}" for name, value in self.fields_of(record).items())


class JsonFormatter(FieldFormatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(self.fields_of(record), default=str)


def _quoted(value: object) -> str:
    text = str(value)
    # A line is one event: characters that would break it up are escaped as in JSON.
    return text if text and text.isprintable() and not set(text) & set(' ="') else json.dumps(text)


def configure_logs(log_format: LogFormat, level: LogLevel = LogLevel.INFO, node: int | None = None) -> None:
    """Send records of this level and above to stderr in this format, replacing handlers that are there."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter(node) if log_format is LogFormat.JSON else LogfmtFormatter(node))
    logging.basicConfig(level=level.name, handlers=[handler], force=True)
    # It says under the name of errors that it starts and stops, which the namespace says better.
    logging.getLogger("uvicorn.error").setLevel(max(logging.WARNING, logging.getLogger().level))
