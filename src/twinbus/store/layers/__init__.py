"""What a durable store keeps in memory above its tables, whatever medium those are on.

located_changes             changes whose contents stay in a segment
overlay, time_index         what they add up to, by segment; by time
fragment_view, rows_below   one fragment, read through all layers and the tables; what changes depend on
hidden_fronts               where looking for what is due or expired begins in the tables
session_lists               lists of message sessions, kept from page to page
recovery                    the layers again, from the journal, when a store is opened
checkpoint_thread, pace     a sealed layer, written to the tables beside the commits; how it gives way to them
"""
