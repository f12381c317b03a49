"""The shell around the gateway: sockets, timers, processes and files. Everything else decides; this does.

namespace         a namespace as a running server: start, stop
serving           a process that serves it until it is told to end
server_settings   its settings, checked
process_setup     logs and interpreter of both processes
tls               TLS contexts, and certificates for development; certificates: what all that we sign have in common
trusted_keys      the keys of issuers whose JSON web tokens count
patience          how long a start waits for others
timers            the beat that ticks brokers and connections
metering          the operations log: its book and writer
tracing           OpenTelemetry spans of messages and requests
spare             waits while another process serves the namespace
listening         the ports, and who is let in
data              what is kept, in a folder or in databases
stores            the messaging stores, in a process of their own or on threads
nodes             a namespace served by several processes
machines          a namespace served by several machines
"""
