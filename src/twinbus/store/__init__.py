"""Messaging stores: changes in, durable rows out. One thread uses a store, and it may block on the disk; the broker's never does.

changes, change_rules       what can happen to rows, and which lists of changes a store accepts
messaging_store, reads      the protocol of a store, and what a broker may ask of one
memory                      a store without a disk, which the durable one is tested against
durable, store_limits       a store on a medium: commits go to the journal, then to the overlay, and in time to the tables
journal_record              changes as bytes, the same on every medium
layers/                     what it keeps in memory above the tables: overlay, views, recovery, checkpoints
room                        how it stays in use while its disk fills up
medium                      what a durable store asks of the place it is kept in
folder/                     a folder as the medium: files and SQLite
postgres/                   a schema of a PostgreSQL database as the medium, owned by lease and epoch
transfer                    one store into another, whatever their media
statements, row_ids         SQL by name; what tables call a row
crc32                       how checksums are computed
checksums, damage           of rows; what the disk changed
"""
