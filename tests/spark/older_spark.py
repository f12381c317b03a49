"""What every version of Spark can do with the source and the sink, as a program. Arguments: the source, the target, a folder.

It runs twice in the same folder, with more messages in between, and prints what it saw. The connection string is in BUS.
"""

import json
import sys

from twinbus.pipeline.session import QUICK_START, spark_session

BUS = {"connectionStringEnv": "BUS"}


def main(source: str, target: str, folder: str) -> None:
    import pyspark

    settings = {**QUICK_START, "spark.sql.warehouse.dir": f"{folder}/warehouse", "spark.log.level": "ERROR"}
    spark = spark_session("older Spark", master="local[2]", settings=settings)
    seen: dict[str, object] = {"version": pyspark.__version__}
    messages = spark.read.format("servicebus").options(**BUS, queue=source).load()
    seen["batch"] = messages.select("messageId").distinct().count()
    stream = spark.readStream.format("servicebus").options(**BUS, queue=source).load()
    captured = stream.select("messageId", "body").writeStream.format("parquet").option("path", f"{folder}/captured")
    captured.option("checkpointLocation", f"{folder}/capturing").trigger(availableNow=True).start().awaitTermination()
    seen["captured"] = spark.read.schema("messageId string, body binary").parquet(f"{folder}/captured").count()
    copies = stream.select("messageId", "body", "properties").writeStream.format("servicebus")
    copies = copies.options(**BUS, queue=target, checkpointLocation=f"{folder}/copying")
    copies.trigger(availableNow=True).start().awaitTermination()
    one = spark.createDataFrame([("by batch", "one more")], "messageId string, body string")
    one.write.format("servicebus").options(**BUS, queue=target).mode("append").save()
    seen["refused"] = refusal(spark, source, folder)
    print(json.dumps(seen))
    spark.stop()


def refusal(spark: object, source: str, folder: str) -> str:
    """What a stream says that would remove messages."""
    reading = spark.readStream.format("servicebus").options(**BUS, queue=source, mode="consume").load()  # type: ignore[attr-defined]
    query = reading.writeStream.format("noop").option("checkpointLocation", f"{folder}/consuming")
    try:
        query.trigger(availableNow=True).start().awaitTermination()
    except Exception as error:
        return str(error)
    return ""


if __name__ == "__main__":
    main(*sys.argv[1:])
