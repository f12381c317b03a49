"""Messages over HTTP: the API, a receive of one message, and the way between AMQP messages and headers, JSON and bodies."""
