"""twinbus: a Service Bus compatible broker, paired namespaces, and a Spark pipeline. docs/ARCHITECTURE.md says what is where."""
