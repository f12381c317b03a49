"""The shell around the gateway: sockets, timers, processes and files. Everything else decides; this does.

namespace         a namespace as a running server: start, stop
holdings          its folder or databases, catalog, root key, and where its stores are
serving           a process that serves it until it is told to end
server_settings   its settings, checked
process_setup     logs and interpreter of both processes
data_folder       the folder with its data, and the lock on it
backup            a copy of that folder while it is in use, and a folder made of one
ports             the ports of a namespace, and connection strings for them
sockets           ports: bind, listen, AMQP, HTTP and TLS on one port
host_names        the names of a listener, for connection strings and certificates
tls               TLS contexts, and certificates for development; certificates: what all that we sign have in common
trusted_keys      the keys of issuers whose JSON web tokens count
admission         how many sockets may be open, and which is closed when there are too many (`refusal_log`: what the log says)
overload          how much memory all connections may cost, and which is closed when it is too much
listener          AMQP on a socket
http_server       HTTP on a socket
timers            the beat that ticks brokers and connections
metering          the operations log: its book and writer
namespace_copy    a namespace moved between a folder and databases; copy_marks: what keeps half of one from being served
restored_stores   stores that were taken back in time, made fit to be served
tracing           OpenTelemetry spans of messages and requests
spare             waits while another process serves the namespace
store_addresses   what --store names
stores            the messaging stores, in a process of their own or on threads
nodes             a namespace served by several processes
machines          a namespace served by several machines
"""
