"""The `twinbus` command: parse, call one function, print. A folder for each group of commands.

app                 all groups, and the run of one command line
command             how commands reach a namespace, and the options they share
output, failures    tables, JSON and errors
reference           the reference page
namespaces          serve, up, doctor, certificate, access, store, fault, namespace
entities            queue, topic, subscription, rule
messages            send, receive, peek, purge, repair, undefer, sessions
pairs               rehearse, syphon, backlog
pipeline            the jobs on Spark
cost                estimates, prices, questions to operations logs
"""
