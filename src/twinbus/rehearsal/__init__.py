"""A planned outage: two namespaces, traffic, a script of faults, and a ledger of every message at the end.

script, traffic (values, decided by a seed) > senders (a paired_application and an unpaired one), receivers, fault_player on a stage > ledger > report
"""
