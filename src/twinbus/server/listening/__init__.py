"""The ports of a namespace, and who is let in.

ports         which ports, and connection strings for them
host_names    the names of a listener, for connection strings and certificates
sockets       bind and listen; AMQP, HTTP and TLS on one port
accepting     connections that wait at a port
listener      AMQP on a socket
http_server   HTTP on a socket
admission     how many sockets may be open, and which is closed when there are too many
overload      how much memory all connections may cost, and which is closed when it is too much
refusal_log   what the log says of those that were refused
"""
