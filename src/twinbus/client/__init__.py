"""The bulk client: moves many messages to and from a namespace, twinbus or Azure, over one connection.

    connecting (from a connection string to a connection) > namespace > sender, receiver, entity_node, entity_extras
                                                            transaction      outcomes, batches

`blocking` is the same for threads, `kept_links` reopens what failed.
`administration` is the official client for the control plane.
"""
