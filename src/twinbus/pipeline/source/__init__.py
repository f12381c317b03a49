"""`spark.read.format("servicebus")` and `spark.readStream.format("servicebus")`.

The data source itself needs Spark and is loaded when it is first asked for: claims, columns and offsets are of use
without it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from twinbus.pipeline.source.data_source import ServiceBusDataSource

__all__ = ["ServiceBusDataSource"]


def __getattr__(name: str) -> Any:
    if name != "ServiceBusDataSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from twinbus.pipeline.source.data_source import ServiceBusDataSource

    return ServiceBusDataSource
