"""The syphon: brings messages from the backlog queues home to the entities they were sent to."""
