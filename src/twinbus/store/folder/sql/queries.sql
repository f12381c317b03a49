-- Every statement on the tables by name. Lists are passed as one JSON array: the engine runs a single statement for all of
-- them, without taking the interpreter lock in between.

-- name: position_and_slot
SELECT position, (SELECT slot FROM fragments WHERE fragment = ?) FROM journal;

-- name: last_numbers
SELECT fragment, last_number FROM fragments;

-- name: rows_after
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, content_sum, checksum
FROM messages WHERE id > :after AND id <= :last AND state IN (:active, :deferred, :scheduled) ORDER BY id LIMIT :count_max;

-- name: session_rows_after
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, content_sum, checksum
FROM messages WHERE slot = :slot AND session_key = :session_key AND id > :after AND id <= :last
AND state IN (:active, :deferred, :scheduled) ORDER BY id LIMIT :count_max;

-- name: rows_by_id
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, content_sum, checksum
FROM messages WHERE id IN (SELECT value FROM json_each(?));

-- name: rows_of_range
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, content_sum, checksum
FROM messages WHERE id BETWEEN ? AND ?;

-- name: row_by_id
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, content_sum, checksum
FROM messages WHERE id = ?;

-- name: content_sums_by_id
SELECT id, content_sum FROM messages WHERE id IN (SELECT value FROM json_each(?));

-- name: content_sums_of_range
SELECT id, content_sum FROM messages WHERE id BETWEEN ? AND ?;

-- name: contents_by_id
SELECT id, content FROM contents WHERE id IN (SELECT value FROM json_each(?));

-- name: contents_of_range
SELECT id, content FROM contents WHERE id BETWEEN ? AND ?;

-- name: scheduled_after
-- In two parts, and not as (due_at, id) > (:at, :id): that reads all rows of the same time from the first one on, and a
-- million messages may be scheduled for the same moment.
SELECT * FROM (
    SELECT due_at, id FROM messages WHERE slot = :slot AND state = 2 AND due_at = :at AND id > :id
    ORDER BY id LIMIT :count_max)
UNION ALL SELECT * FROM (
    SELECT due_at, id FROM messages WHERE slot = :slot AND state = 2 AND due_at > :at ORDER BY due_at, id LIMIT :count_max)
ORDER BY 1, 2 LIMIT :count_max;

-- name: mortal_after
-- In two parts, as above. Without the likelihood the planner takes the condition of the index for the better one.
SELECT * FROM (
    SELECT expires_at, id FROM messages WHERE slot = :slot AND state = 0 AND expires_at < 9223372036854775807
    AND likelihood(expires_at = :at, 0.0001) AND id > :id ORDER BY expires_at, id LIMIT :count_max)
UNION ALL SELECT * FROM (
    SELECT expires_at, id FROM messages WHERE slot = :slot AND state = 0 AND expires_at < 9223372036854775807
    AND expires_at > :at ORDER BY expires_at, id LIMIT :count_max)
ORDER BY 1, 2 LIMIT :count_max;

-- name: counts_without
SELECT slot, state, count(*), sum(size) FROM messages WHERE id NOT IN (SELECT value FROM json_each(?)) GROUP BY slot, state;

-- name: sessions_without
-- The id is that of the first message. It is looked up afterwards, so that the rest is read from the index alone.
SELECT (SELECT session_id FROM messages WHERE id = first), active_count, first FROM (
    SELECT count(*) AS active_count, min(id) AS first FROM messages WHERE slot = :slot AND session_key IS NOT NULL
    AND state = 0 AND id NOT IN (SELECT value FROM json_each(:hidden)) GROUP BY session_key
);

-- name: session_states
SELECT session_key, session_id, updated_at, content_sum, checksum FROM session_states WHERE slot = ?;

-- name: session_state
SELECT session_key, session_id, updated_at, content_sum, checksum, state FROM session_states WHERE slot = ? AND session_key = ?;

-- name: duplicates
SELECT key, until, checksum FROM duplicates WHERE slot = ?;

-- name: slot_of
SELECT slot FROM fragments WHERE fragment = ?;

-- name: lowest_free_slot
SELECT min(slot) + 1 FROM (SELECT 0 AS slot UNION ALL SELECT slot FROM fragments) AS used
WHERE NOT EXISTS (SELECT 1 FROM fragments AS next WHERE next.slot = used.slot + 1);

-- name: fragment_row
SELECT slot, fragment, last_number, active_count, deferred_count, scheduled_count, size_bytes, message_sums, state_sums,
  duplicate_sums, checksum FROM fragments WHERE fragment = ?;

-- name: put_fragment
INSERT OR REPLACE INTO fragments (slot, fragment, last_number, active_count, deferred_count, scheduled_count, size_bytes,
  message_sums, state_sums, duplicate_sums, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

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
-- The values of one row: for many they are repeated.
INSERT INTO messages (slot, id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id,
  session_key, content_sum, checksum) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?);

-- name: put_contents
-- The values of one row, as above.
INSERT OR REPLACE INTO contents (id, content) VALUES (?, ?);

-- name: sums_of_range
SELECT state, count(*), sum(size), sum(checksum) FROM messages WHERE id BETWEEN ? AND ? GROUP BY state;

-- name: states_of_range
SELECT count(*), sum(size), sum(checksum), min(state), max(state), min(due_at), max(due_at), count(session_id)
FROM messages WHERE id BETWEEN ? AND ?;

-- name: restate_range
-- The difference of the checksums is an exclusive or, for which the engine has no operator.
UPDATE messages SET state = ?1, due_at = ?2, checksum = (checksum | ?3) - (checksum & ?3)
WHERE id BETWEEN ?4 AND ?5;

-- name: copy_contents
-- For rows that got a new number: the content is copied from the old row, which is deleted afterwards.
INSERT OR REPLACE INTO contents (id, content)
SELECT value->>0, contents.content FROM json_each(?) JOIN contents ON contents.id = value->>1;

-- name: delete_messages
DELETE FROM messages WHERE id IN (SELECT value FROM json_each(?)) RETURNING id, state, size, content_sum, checksum;

-- name: delete_contents
DELETE FROM contents WHERE id IN (SELECT value FROM json_each(?));

-- name: put_session_state
INSERT INTO session_states (slot, session_key, session_id, state, updated_at, content_sum, checksum)
VALUES (?, ?, ?, ?, ?, ?, ?);

-- name: delete_session_state
DELETE FROM session_states WHERE slot = ? AND session_key = ? RETURNING checksum;

-- name: forget_duplicates
DELETE FROM duplicates WHERE slot = ? AND until <= ? RETURNING checksum;

-- name: put_duplicates
INSERT INTO duplicates (slot, key, until, checksum)
SELECT ?1, value->>0, value->>1, value->>2 FROM json_each(?2);

-- name: delete_duplicates
DELETE FROM duplicates WHERE slot = ? AND key IN (SELECT value FROM json_each(?)) RETURNING checksum;

-- name: journal_row
SELECT position, schema_sum, fragment_sums, checksum FROM journal;

-- name: put_journal_row
UPDATE journal SET position = ?, schema_sum = ?, fragment_sums = ?, checksum = ?;

-- name: fragment_sums
SELECT coalesce(sum(checksum), 0) FROM fragments;

-- name: schema
SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY type, name;

-- name: check_structure
SELECT integrity_check FROM pragma_integrity_check(?);

-- name: check_everything
SELECT integrity_check FROM pragma_integrity_check;

-- name: all_fragments
SELECT slot, fragment, last_number, active_count, deferred_count, scheduled_count, size_bytes, message_sums, state_sums,
  duplicate_sums, checksum FROM fragments ORDER BY slot;

-- name: counted_messages
SELECT slot, sum(state = 0), sum(state = 1), sum(state = 2), sum(size), sum(checksum) FROM messages NOT INDEXED GROUP BY slot;

-- name: counted_states
SELECT slot, sum(checksum) FROM session_states GROUP BY slot;

-- name: counted_duplicates
SELECT slot, sum(checksum) FROM duplicates NOT INDEXED GROUP BY slot;

-- name: all_messages
SELECT id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, content_sum, checksum,
  slot, session_key FROM messages NOT INDEXED WHERE id > ? ORDER BY id LIMIT ?;

-- name: all_states
SELECT slot, session_key, session_id, updated_at, content_sum, checksum, state FROM session_states;

-- name: all_duplicates
SELECT slot, key, until, checksum FROM duplicates NOT INDEXED;

-- name: raw_message
SELECT * FROM messages NOT INDEXED WHERE id = ?;

-- name: raw_content
SELECT content FROM contents WHERE id = ?;

-- name: raw_session_state
SELECT * FROM session_states WHERE slot = ? AND session_key = ?;

-- name: raw_duplicate
SELECT * FROM duplicates NOT INDEXED WHERE slot = ? AND key = ?;

-- name: note_damage
INSERT INTO damaged (place, what, facts, content) VALUES (?, ?, ?, ?);

-- name: damage
SELECT place, what FROM damaged WHERE NOT is_accepted ORDER BY found;

-- name: accept_damage
UPDATE damaged SET is_accepted = 1 WHERE NOT is_accepted;
