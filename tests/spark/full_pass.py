"""A whole pass as a program: messages of one queue by a stream to another. Arguments: master, source, target, folder.

The namespace's connection string is in the variable BUS, on every node.
"""

import json
import sys

from twinbus.pipeline.session import QUICK_START, spark_session

SETTINGS = {
    **QUICK_START,
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # Of what is asked for, the first task waits for all: both workers have something to do.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "60s",
    "spark.log.level": "ERROR",
}


def main(master: str, source: str, target: str, folder: str) -> None:
    spark = spark_session("full pass", master=master, settings={} if master.startswith("sc://") else SETTINGS)
    bus = {"connectionStringEnv": "BUS"}
    # Two tasks or more, so that there is something for both workers to do.
    reading = {**bus, "queue": source, "mode": "consume", "maxMessagesPerTrigger": "600", "minPartitions": "2"}
    messages = spark.readStream.format("servicebus").options(**reading).load()
    sent = messages.selectExpr("upper(cast(body as string)) as body", "messageId", "partitionKey")
    writing = sent.writeStream.format("servicebus").options(**bus, queue=target)
    query = writing.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    batches = [progress.batchId for progress in query.recentProgress if progress.numInputRows]
    read_back = spark.read.format("servicebus").options(**bus, queue=target).load().select("messageId").collect()
    print(json.dumps({"batches": len(batches), "read_back": len({row.messageId for row in read_back})}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
