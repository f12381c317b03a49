"""The control plane of a namespace, without HTTP: what exists, who may use it, and how full it is.

control_plane      creates, changes and deletes entities and rules of subscriptions
access_control     the same for SAS rules
idle_sweep         deletes entities that nobody uses
validation, quotas what is allowed
forward_targets    where entities may forward to
catalog            what exists, durable; records and typed_values are its rows
rule_set           the rules of a subscription in it
catalog_file       a file that it is kept in; catalog_checks: whether the disk changed any of it
catalog_postgres   a schema of a database that it is kept in; catalog_shared: one that several machines change
catalog_copy       one catalog into another
runtime, counts    what runs, and how full it is
own_process        what runs here is what the catalog says, also after a failure
peers              the other processes that serve the namespace; follower: what one does when another has made a change
waiting            for the turn of a name and for the brokers
"""
