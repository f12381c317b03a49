"""Messaging stores: changes in, durable rows out. One thread uses a store, and it may block on the disk; the broker's never does.

changes, change_rules       what can happen to rows, and which lists of changes a store accepts
messaging_store, reads      the protocol of a store, and what a broker may ask of one
memory                      a store without a disk, which the durable one is tested against
durable, store_limits       a store in a folder: commits go to the journal, then to the overlay, and in time to the tables
journal, journal_record     segments of batches on disk (`flipped_bit`: damage told from a torn write); changes as bytes
located_changes, overlay    changes whose contents stay in a segment; what they add up to (`time_index`: by time)
checkpoint, checkpoint_thread   a sealed layer, written to the tables beside the commits; space that is given back
tables, statements          SQLite, read in snapshots; its SQL by name (`private_file`: for the owner only)
checksums, damage           of rows; what the disk changed
table_check, folder_check   the tables, checked when a store opens, and damaged rows set aside; everything, on request
fragment_view               one fragment, read through all layers and the tables
identity, accepted_loss     a store that is gone is told from a new one; what was accepted as lost, set aside
recovery                    the layers again, from the journal, when a store is opened
"""
