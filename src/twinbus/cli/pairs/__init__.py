"""Commands about pairs of namespaces: the rehearsal of an outage, and the way home for what was set aside."""
