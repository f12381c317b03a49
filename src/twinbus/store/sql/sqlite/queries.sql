-- Every statement on the tables by name. Lists are passed as one JSON array: the engine runs a single statement for all of
-- them, without taking the interpreter lock in between.

-- name: position_and_slot
SELECT position, (SELECT slot FROM fragments WHERE fragment = ?) FROM journal;

-- name: last_numbers
SELECT fragment, last_number FROM fragments;

-- name: rows_after
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, 0 FROM messages
WHERE id > :after AND id <= :last AND state IN (:active, :deferred, :scheduled) ORDER BY id LIMIT :count_max;

-- name: session_rows_after
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, 0 FROM messages
WHERE slot = :slot AND session_key = :session_key AND id > :after AND id <= :last
AND state IN (:active, :deferred, :scheduled) ORDER BY id LIMIT :count_max;

-- name: row_by_id
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, 0 FROM messages
WHERE id = ?;

-- name: contents_by_id
SELECT id, content FROM contents WHERE id IN (SELECT value FROM json_each(?));

-- name: scheduled_after
SELECT due_at, id FROM messages WHERE slot = :slot AND state = 2 AND (due_at, id) > (:at, :id)
ORDER BY due_at, id LIMIT :count_max;

-- name: mortal_after
SELECT expires_at, id FROM messages WHERE slot = :slot AND state = 0 AND expires_at < 9223372036854775807
AND (expires_at, id) > (:at, :id) ORDER BY expires_at, id LIMIT :count_max;

-- name: counts_without
SELECT slot, state, count(*), sum(size) FROM messages WHERE id NOT IN (SELECT value FROM json_each(?)) GROUP BY slot, state;

-- name: sessions_without
-- The id is that of the first message. It is looked up afterwards, so that the rest is read from the index alone.
SELECT (SELECT session_id FROM messages WHERE id = first), active_count, first FROM (
    SELECT count(*) AS active_count, min(id) AS first FROM messages WHERE slot = :slot AND session_key IS NOT NULL
    AND state = 0 AND id NOT IN (SELECT value FROM json_each(:hidden)) GROUP BY session_key
);

-- name: session_states
SELECT session_id, updated_at FROM session_states WHERE slot = ?;

-- name: session_state
SELECT state FROM session_states WHERE slot = ? AND session_key = ?;

-- name: duplicates
SELECT key, until FROM duplicates WHERE slot = ?;

-- name: slot_of
SELECT slot FROM fragments WHERE fragment = ?;

-- name: lowest_free_slot
SELECT min(slot) + 1 FROM (SELECT 0 AS slot UNION ALL SELECT slot FROM fragments) AS used
WHERE NOT EXISTS (SELECT 1 FROM fragments AS next WHERE next.slot = used.slot + 1);

-- name: put_fragment
INSERT INTO fragments (slot, fragment, last_number) VALUES (?, ?, ?)
ON CONFLICT (fragment) DO UPDATE SET last_number = excluded.last_number;

-- name: delete_fragment
DELETE FROM fragments WHERE fragment = ?;

-- name: delete_slot_contents
DELETE FROM contents WHERE id BETWEEN ? AND ?;

-- name: delete_slot_messages
DELETE FROM messages WHERE id BETWEEN ? AND ?;

-- name: delete_slot_session_states
DELETE FROM session_states WHERE slot = ?;

-- name: delete_slot_duplicates
DELETE FROM duplicates WHERE slot = ?;

-- name: put_messages
INSERT OR REPLACE INTO messages (slot, id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id,
  session_key)
SELECT ?1, value->>0, value->>1, value->>2, value->>3, value->>4, value->>5, value->>6, value->>7, value->>8,
  value->>9 FROM json_each(?2);

-- name: put_contents
-- The second parameter is a piece of the journal, from which the contents of the rows are cut; substr of an empty piece is NULL.
INSERT OR REPLACE INTO contents (id, content)
SELECT value->>0, coalesce(substr(?2, value->>1, value->>2), x'') FROM json_each(?1);

-- name: copy_contents
-- For rows that got a new number: the content is copied from the old row, which is deleted afterwards.
INSERT OR REPLACE INTO contents (id, content)
SELECT value->>0, contents.content FROM json_each(?) JOIN contents ON contents.id = value->>1;

-- name: delete_messages
DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?));

-- name: delete_contents
DELETE FROM contents WHERE id IN (SELECT value FROM json_each(?));

-- name: put_session_state
INSERT OR REPLACE INTO session_states (slot, session_key, session_id, state, updated_at) VALUES (?, ?, ?, ?, ?);

-- name: delete_session_state
DELETE FROM session_states WHERE slot = ? AND session_key = ?;

-- name: forget_duplicates
DELETE FROM duplicates WHERE slot = ? AND until <= ?;

-- name: put_duplicates
INSERT OR REPLACE INTO duplicates (slot, key, until)
SELECT ?1, value->>0, value->>1 FROM json_each(?2);

-- name: delete_duplicates
DELETE FROM duplicates WHERE slot = ? AND key IN (SELECT value FROM json_each(?));

-- name: set_position
UPDATE journal SET position = ?;
