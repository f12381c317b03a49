"""The bulk client: moves many messages to and from a namespace, twinbus or Azure, over one connection.

    connection_string > dialling > wire (socket, amqp.connection) > namespace > sender, receiver, entity_node, entity_extras
                                    tokens, token_sources            transaction      outcomes, batches

`trust` says whom connections over TLS trust. `blocking` is the same for threads, `kept_links` reopens what failed.
`administration` is the official client for the control plane.
"""
