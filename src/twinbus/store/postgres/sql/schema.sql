-- The schema of one messaging store. `epoch`, `lease` and `position` are tables of one row each: in one row together,
-- commits, renewals and checkpoints would wait for one another.

CREATE TABLE store (
    one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    version INTEGER NOT NULL,
    records INTEGER NOT NULL,
    number INTEGER NOT NULL,
    store_count INTEGER NOT NULL,
    identity TEXT NOT NULL
);

-- Every commit locks the row with FOR SHARE and names its epoch; a takeover raises it, and so waits for commits under way and
-- is seen by all later ones.
CREATE TABLE epoch (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), epoch BIGINT NOT NULL);
INSERT INTO epoch (epoch) VALUES (0);

CREATE TABLE lease (
    one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    owner TEXT NOT NULL,
    address TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
INSERT INTO lease (owner, address, until) VALUES ('', '', '-infinity');

-- The newest journal segment that is in the tables.
CREATE TABLE position (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), position BIGINT NOT NULL);
INSERT INTO position (position) VALUES (0);

-- Segment n is in journal n modulo 3. A commit is one row, or several parts if it is large; `start` is the place of its first
-- byte in the segment. EXTERNAL: substring() reads only the chunks that it needs.
CREATE TABLE segments (number BIGINT PRIMARY KEY, first_sequence BIGINT NOT NULL);
INSERT INTO segments (number, first_sequence) VALUES (1, 1);

CREATE TABLE journal_0 (
    sequence BIGINT NOT NULL,
    part INTEGER NOT NULL,
    segment BIGINT NOT NULL,
    start BIGINT NOT NULL,
    body BYTEA NOT NULL,
    PRIMARY KEY (sequence, part)
) WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
ALTER TABLE journal_0 ALTER body SET STORAGE EXTERNAL;
CREATE TABLE journal_1 (LIKE journal_0 INCLUDING ALL) WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);
CREATE TABLE journal_2 (LIKE journal_0 INCLUDING ALL) WITH (autovacuum_enabled = off, toast.autovacuum_enabled = off);

-- What all checkpointed segments add up to. A message's id is its fragment's slot and its number in one integer
-- (slot << 44 | counter). Texts that callers chose are JSON strings, which hold any text. Rows have no checksums of ours: the
-- server checks its pages.
CREATE TABLE fragments (
    slot INTEGER PRIMARY KEY CHECK (slot BETWEEN 1 AND 524287),
    fragment BIGINT NOT NULL UNIQUE,
    last_number BIGINT NOT NULL
);

CREATE TABLE messages (
    id BIGINT PRIMARY KEY,
    slot INTEGER NOT NULL,
    state SMALLINT NOT NULL,
    delivery_count INTEGER NOT NULL,
    due_at BIGINT NOT NULL,
    expires_at BIGINT NOT NULL,
    enqueued_at BIGINT NOT NULL,
    enqueued_number BIGINT NOT NULL,
    size BIGINT NOT NULL,
    session_id TEXT COLLATE "C",
    session_key TEXT COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0, fillfactor = 70);
CREATE INDEX messages_of_session ON messages (slot, session_key, id) WHERE session_key IS NOT NULL;
CREATE INDEX messages_scheduled ON messages (slot, due_at, id) WHERE state = 2;
CREATE INDEX messages_mortal ON messages (slot, expires_at, id) WHERE state = 0 AND expires_at < 9223372036854775807;

CREATE TABLE contents (id BIGINT PRIMARY KEY, content BYTEA NOT NULL)
    WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);
ALTER TABLE contents ALTER content SET STORAGE EXTERNAL;

CREATE TABLE session_states (
    slot INTEGER NOT NULL,
    session_key TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    state BYTEA NOT NULL,
    updated_at BIGINT NOT NULL,
    PRIMARY KEY (slot, session_key)
);

CREATE TABLE duplicates (
    slot INTEGER NOT NULL,
    key TEXT COLLATE "C" NOT NULL,
    until BIGINT NOT NULL,
    PRIMARY KEY (slot, key)
);
CREATE INDEX duplicates_by_end ON duplicates (slot, until);
