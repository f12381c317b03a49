"""From a connection string to an authorised AMQP connection.

connection_string   what one says, checked
dialling            sockets to a namespace: TCP, TLS or a WebSocket
trust               whom connections over TLS trust
websocket           AMQP bytes in the frames of a WebSocket
wire                one connection: a socket, and the protocol over it
tokens              what is put on `$cbs`, and when again
token_sources       where tokens come from: keys, signatures, credentials
"""
