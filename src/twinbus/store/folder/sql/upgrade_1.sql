-- From version 1 of the tables to version 2: session ids are compared by their keys. The function session_key is the one in
-- twinbus.model.session_key, over JSON strings. Of two states that are now of one message session, the later one stays.

ALTER TABLE messages ADD COLUMN session_key TEXT;
UPDATE messages SET session_key = session_key(session_id) WHERE session_id IS NOT NULL;
DROP INDEX messages_of_session;
CREATE INDEX messages_of_session ON messages (slot, session_key, id, state) WHERE session_key IS NOT NULL;

ALTER TABLE session_states RENAME TO session_states_1;
CREATE TABLE session_states (
    slot INTEGER NOT NULL,
    session_key TEXT NOT NULL,
    session_id TEXT NOT NULL,
    state BLOB NOT NULL,
    updated_at INTEGER NOT NULL,
    PRIMARY KEY (slot, session_key)
) WITHOUT ROWID;
INSERT OR REPLACE INTO session_states (slot, session_key, session_id, state, updated_at)
SELECT slot, session_key(session_id), session_id, state, updated_at FROM session_states_1 ORDER BY updated_at;
DROP TABLE session_states_1;
