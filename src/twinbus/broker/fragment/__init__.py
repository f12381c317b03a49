"""One fragment: the part of a sub-queue that is in one messaging store. Only the fragment and its decisions write its state.

fragment           what is known of it in memory
neighbours         what it has to know of those above it
decision           what is decided about its rows, as one commit
tally, agenda      counts and numbers; when something is due or expires
lane               active messages in order, the first of them in memory
locks              who may settle what
reading_again      contents of locked messages that were left to the store
intake             messages that come in (`duplicates`: which ids it took lately; `hops`: how often one was forwarded)
names              second tries: which messages it took lately whose sender may ask again
hand_over          messages that go out
settlement         what a receiver decided
message_sessions   a lane for each session, and who holds it
upkeep             what happens as time passes
fragment_group     several fragments of one entity together
"""
