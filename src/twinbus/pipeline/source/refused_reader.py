"""`readStream` with wrong options: whatever Spark asks first, the answer is what is wrong with them."""

from typing import Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow

from twinbus.pipeline.connection_options import OptionError


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Looks like a reader that can do everything, so that Spark complains of nothing else before it asks."""

    def __init__(self, reason: OptionError) -> None:
        self._reason = reason

    def initialOffset(self) -> NoReturn:
        raise self._reason

    def prepareForTriggerAvailableNow(self) -> NoReturn:
        raise self._reason

    def getDefaultReadLimit(self) -> NoReturn:
        raise self._reason

    def latestOffset(self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None) -> NoReturn:
        raise self._reason

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> NoReturn:
        raise self._reason

    def read(self, partition: object) -> NoReturn:
        raise self._reason
