"""A store's folder as its medium: files of the journal, SQLite tables, a lock, and an identity that tells gone from empty.

medium, store               the folder as one `Medium`; a durable store in it
journal, flipped_bit        segments as files of batches; damage told from a torn write
tables, checkpoint, sql/    SQLite, read in snapshots; a layer written to it, and space given back
steady_writes               the files of a large checkpoint, synced while it is written
salvage                     rows of tables that cannot be used any more
table_check, folder_check   the tables, checked when a store opens, and damaged rows set aside; everything, on request
commit_mark                 how many commits there were, as a witness of those that are missing at the end
identity, accepted_loss     a store that is gone is told from a new one; what was accepted as lost, set aside
copying                     a copy of the folder while a store is open in it
private_file, disk_space    for the owner only; what the disk has left
"""
