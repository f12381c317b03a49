"""The syphon as a Spark job: brings the messages of many backlog queues home with as many cores as there are.

Messages do not pass through Spark. The driver plans rounds; a task runs the pumps of its lanes
(`twinbus.pairing.syphon`, the same as in-process) for a time budget and returns rows that say what came of it.

    driver   depths, breakers, rests, ramps --> round --> tasks of lanes --> reports --> metrics
    task     pump, pump, pump ...  receive -> restore -> send -> complete
"""
