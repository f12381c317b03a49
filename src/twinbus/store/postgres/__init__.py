"""A schema of a PostgreSQL database as the medium of a store. Needs the extra `twinbus[postgres]`.

place, store                where a store is, and a durable store there
medium, lease               the schema as one `Medium`; who owns it, and for how long
renewal_rounds              when leases are renewed, and when not
journal                     segments as rows of rotating tables
tables, checkpoint          what all segments add up to, read in snapshots; a layer written to it
statements, sql/            its SQL by name
binary_rows                 numbers and rows in the server's binary formats
connection, schema          how we connect, what we refuse, and errors in our words; schemas created once
watch                       connections whose server has stopped answering, ended from outside
"""
