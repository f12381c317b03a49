"""`spark.read.format("servicebus")` and `spark.readStream.format("servicebus")`."""

from twinbus.pipeline.source.data_source import ServiceBusDataSource

__all__ = ["ServiceBusDataSource"]
