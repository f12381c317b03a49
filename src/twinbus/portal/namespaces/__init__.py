"""Namespaces as the portal reaches them: what any client may use, and nothing else.

directory       which namespaces there are: given, found on this machine, or logged in to
bus             one of them: AMQP, administration and HTTP, opened when needed and again when lost
entity_list     its queues, topics and subscriptions with settings and counts, from one listing
entity_xml      an entry of that listing as values
metrics_text    the text of /metrics as figures
watch           rates over time, asked for only while someone looks, at a bounded cost
sentences       every error as one sentence for the reader
"""
