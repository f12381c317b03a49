-- The tables of one messaging store: what all checkpointed journal segments add up to.
--
-- A message's id is its fragment's slot and its number in one integer (slot << 44 | counter), so that
-- rows are stored in the order in which they are scanned. Content has a table of its own, so that statements that
-- count, update or look for what is due do not have to read past it.
-- Texts that callers chose (session ids, duplicate keys) are kept as JSON strings, which hold any text. A session id is
-- kept as it was sent, and found by its key, which is the same for all ids of one message session.
-- Every row has a checksum (twinbus.store.checksums), and a fragment knows how many rows it has and what their checksums
-- add up to, so that a row that is missing is noticed too. What was found damaged is moved to the table of that name.

CREATE TABLE journal (
    position INTEGER NOT NULL,
    schema_sum INTEGER NOT NULL DEFAULT 0,
    fragment_sums INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL DEFAULT 0
);
INSERT INTO journal (position) VALUES (0);

CREATE TABLE fragments (
    slot INTEGER PRIMARY KEY CHECK (slot BETWEEN 1 AND 524287),
    fragment INTEGER NOT NULL UNIQUE,
    last_number INTEGER NOT NULL,
    active_count INTEGER NOT NULL DEFAULT 0,
    deferred_count INTEGER NOT NULL DEFAULT 0,
    scheduled_count INTEGER NOT NULL DEFAULT 0,
    size_bytes INTEGER NOT NULL DEFAULT 0,
    message_sums INTEGER NOT NULL DEFAULT 0,
    state_sums INTEGER NOT NULL DEFAULT 0,
    duplicate_sums INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL DEFAULT 0
);

CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    slot INTEGER NOT NULL,
    state INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    expires_at INTEGER NOT NULL,
    delivery_count INTEGER NOT NULL,
    enqueued_at INTEGER NOT NULL,
    enqueued_number INTEGER NOT NULL,
    size INTEGER NOT NULL,
    session_id TEXT,
    session_key TEXT,
    content_sum INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX messages_of_session ON messages (slot, session_key, id, state) WHERE session_key IS NOT NULL;
CREATE INDEX messages_scheduled ON messages (slot, due_at, id) WHERE state = 2;
CREATE INDEX messages_mortal ON messages (slot, expires_at, id) WHERE state = 0 AND expires_at < 9223372036854775807;

CREATE TABLE contents (id INTEGER PRIMARY KEY, content BLOB NOT NULL);

CREATE TABLE session_states (
    slot INTEGER NOT NULL,
    session_key TEXT NOT NULL,
    session_id TEXT NOT NULL,
    state BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    content_sum INTEGER NOT NULL DEFAULT 0,
    checksum INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (slot, session_key)
) WITHOUT ROWID;

CREATE TABLE duplicates (
    slot INTEGER NOT NULL,
    key TEXT NOT NULL,
    until INTEGER NOT NULL,
    checksum INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (slot, key)
) WITHOUT ROWID;
CREATE INDEX duplicates_by_end ON duplicates (slot, until);

CREATE TABLE damaged (
    found INTEGER PRIMARY KEY,
    place TEXT NOT NULL,
    what TEXT NOT NULL,
    facts TEXT NOT NULL,
    content BLOB,
    is_accepted INTEGER NOT NULL DEFAULT 0
);
