-- Every statement on the schema of a store by name; {journal} is the table of a segment. Lists are passed as arrays, so that
-- one round trip does for all of them.

-- name: lock_creation
SELECT pg_advisory_xact_lock(hashtextextended(%s, 0));

-- name: schema_exists
SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = %s);

-- name: put_store
INSERT INTO store (version, records, number, store_count, identity) VALUES (%s, %s, %s, %s, %s);

-- name: store
SELECT version, records, store_count, identity FROM store;

-- name: lock_lease
SELECT owner, address, until > clock_timestamp() FROM lease FOR UPDATE;

-- name: end_backends
-- Those of the owner before: a dead machine's transaction would hold the lock of the epoch.
SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s AND pid <> pg_backend_pid();

-- name: raise_epoch
UPDATE epoch SET epoch = epoch + 1 RETURNING epoch;

-- name: take_lease
UPDATE lease SET owner = %s, address = %s, until = clock_timestamp() + make_interval(secs => %s);

-- name: renew_lease
UPDATE {schema}.lease SET until = clock_timestamp() + make_interval(secs => %s) WHERE owner = %s
RETURNING current_setting('synchronous_standby_names') <> '';

-- name: give_lease_back
UPDATE {schema}.lease SET until = clock_timestamp() WHERE owner = %s AND until > clock_timestamp();

-- name: leave_lease
-- In good order, with nothing under way: a renewal that is finds nothing to prolong.
UPDATE {schema}.lease SET owner = '', until = clock_timestamp() WHERE owner = %s;

-- name: leave_register
-- A node of several that is gone: the others need not wait for the end of its beats.
UPDATE {schema}.nodes SET until = clock_timestamp() WHERE incarnation = %s AND until > clock_timestamp();

-- name: lease
SELECT owner, address, until > clock_timestamp() FROM {schema}.lease;

-- name: require_epoch
SELECT 1 FROM epoch WHERE epoch = %s FOR SHARE;

-- name: append
-- Parameters as libpq numbers them: see `Connection.change`.
INSERT INTO {journal} (sequence, part, segment, start, body)
SELECT $1::bigint, $2::bigint, $3::bigint, $4::bigint, $5::bytea FROM epoch WHERE epoch = $6::bigint FOR SHARE;

-- name: segments
SELECT number FROM segments ORDER BY number;

-- name: first_sequence
SELECT first_sequence FROM segments WHERE number = %s;

-- name: put_segment
INSERT INTO segments (number, first_sequence) VALUES (%s, %s);

-- name: delete_segment
DELETE FROM segments WHERE number = %s;

-- name: truncate
TRUNCATE {journal};

-- name: delete_rows
DELETE FROM {journal} WHERE segment = %s;

-- name: batches
SELECT sequence, part, start, body FROM {journal} WHERE segment = %s ORDER BY sequence, part;

-- name: pieces
-- Some bytes of some rows of the journal.
SELECT wanted.place, substring(body FROM wanted.first FOR wanted.size)
FROM unnest(%s::bigint[], %s::bigint[], %s::int[], %s::int[], %s::int[]) AS wanted (place, sequence, part, first, size)
JOIN {journal} AS journal ON journal.sequence = wanted.sequence AND journal.part = wanted.part;

-- name: wait_in_transaction
SET idle_in_transaction_session_timeout = 0;

-- name: begin_snapshot
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: position_and_slot
SELECT position, (SELECT slot FROM fragments WHERE fragment = %s) FROM position;

-- name: slot_of
SELECT slot FROM fragments WHERE fragment = %s;

-- name: last_numbers
SELECT fragment, last_number FROM fragments;

-- name: rows_after
SELECT id, state::int, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id
FROM messages WHERE id > %s AND id <= %s AND state = ANY(%s::smallint[]) ORDER BY id LIMIT %s;

-- name: session_rows_after
SELECT id, state::int, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id
FROM messages WHERE slot = %s AND session_key = %s AND id > %s AND id <= %s AND state = ANY(%s::smallint[])
ORDER BY id LIMIT %s;

-- name: rows_by_id
SELECT id, state::int, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id
FROM messages WHERE id = ANY(%s::bigint[]);

-- name: contents_by_id
SELECT id, content FROM contents WHERE id = ANY(%s::bigint[]);

-- name: scheduled_after
-- In two parts: a comparison of rows reads all of the same time from the first one on.
(SELECT due_at, id FROM messages WHERE slot = %(slot)s AND state = 2 AND due_at = %(at)s AND id > %(id)s
 ORDER BY id LIMIT %(count_max)s)
UNION ALL
(SELECT due_at, id FROM messages WHERE slot = %(slot)s AND state = 2 AND due_at > %(at)s ORDER BY due_at, id LIMIT %(count_max)s)
ORDER BY 1, 2 LIMIT %(count_max)s;

-- name: mortal_after
(SELECT expires_at, id FROM messages WHERE slot = %(slot)s AND state = 0 AND expires_at < 9223372036854775807
 AND expires_at = %(at)s AND id > %(id)s ORDER BY id LIMIT %(count_max)s)
UNION ALL
(SELECT expires_at, id FROM messages WHERE slot = %(slot)s AND state = 0 AND expires_at < 9223372036854775807
 AND expires_at > %(at)s ORDER BY expires_at, id LIMIT %(count_max)s)
ORDER BY 1, 2 LIMIT %(count_max)s;

-- name: counts
SELECT slot, state::int, count(*), sum(size)::bigint FROM messages GROUP BY slot, state;

-- name: counts_of
SELECT slot, state::int, count(*), sum(size)::bigint FROM messages WHERE id = ANY(%s::bigint[]) GROUP BY slot, state;

-- name: sessions_without
SELECT (SELECT session_id FROM messages WHERE id = first), active_count, first FROM (
    SELECT count(*) AS active_count, min(id) AS first FROM messages LEFT JOIN unnest(%s::bigint[]) AS hidden (hidden) ON hidden = id
    WHERE slot = %s AND session_key IS NOT NULL AND state = 0 AND hidden IS NULL GROUP BY session_key
) AS sessions;

-- name: session_states
SELECT session_id, updated_at FROM session_states WHERE slot = %s;

-- name: session_state
SELECT state FROM session_states WHERE slot = %s AND session_key = %s;

-- name: duplicates
SELECT key, until FROM duplicates WHERE slot = %s;

-- name: lowest_free_slot
SELECT min(slot) + 1 FROM (SELECT 0 AS slot UNION ALL SELECT slot FROM fragments) AS used
WHERE NOT EXISTS (SELECT 1 FROM fragments AS next WHERE next.slot = used.slot + 1);

-- name: put_fragment
INSERT INTO fragments (slot, fragment, last_number) VALUES (%s, %s, %s)
ON CONFLICT (slot) DO UPDATE SET last_number = excluded.last_number;

-- name: delete_fragment
DELETE FROM fragments WHERE fragment = %s;

-- name: delete_slot_contents
DELETE FROM contents WHERE id BETWEEN %s AND %s;

-- name: delete_slot_messages
DELETE FROM messages WHERE id BETWEEN %s AND %s;

-- name: delete_slot_session_states
DELETE FROM session_states WHERE slot = %s;

-- name: delete_slot_duplicates
DELETE FROM duplicates WHERE slot = %s;

-- name: put_messages
INSERT INTO messages (slot, id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, session_key)
SELECT %s, * FROM unnest(%b::bigint[], %b::smallint[], %b::bigint[], %b::bigint[], %b::int[], %b::bigint[], %b::bigint[],
  %b::bigint[], %s::text[], %s::text[])
ON CONFLICT (id) DO UPDATE SET state = excluded.state, due_at = excluded.due_at, expires_at = excluded.expires_at,
  delivery_count = excluded.delivery_count, size = excluded.size;

-- name: restate_range
UPDATE messages SET state = %s, due_at = %s WHERE id BETWEEN %s AND %s;

-- name: copy_messages
-- The columns in the order of binary_rows.py.
COPY messages (slot, id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size, session_id, session_key)
FROM STDIN (FORMAT binary);

-- name: add_contents
-- Cut by the server out of the journal.
INSERT INTO contents (id, content)
SELECT wanted.id, substring(body FROM wanted.first::int FOR wanted.size::int)
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]) AS wanted (id, sequence, part, first, size)
JOIN {journal} AS journal ON journal.sequence = wanted.sequence AND journal.part = wanted.part;

-- name: put_contents
INSERT INTO contents (id, content)
SELECT wanted.id, substring(body FROM wanted.first::int FOR wanted.size::int)
FROM unnest(%b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[], %b::bigint[]) AS wanted (id, sequence, part, first, size)
JOIN {journal} AS journal ON journal.sequence = wanted.sequence AND journal.part = wanted.part
ON CONFLICT (id) DO UPDATE SET content = excluded.content;

-- name: put_content
INSERT INTO contents (id, content) VALUES (%s, %b) ON CONFLICT (id) DO UPDATE SET content = excluded.content;

-- name: copy_contents
-- For rows that got a new number: the content is copied from the old row, which is deleted afterwards.
INSERT INTO contents (id, content)
SELECT wanted.new, contents.content FROM unnest(%s::bigint[], %s::bigint[]) AS wanted (new, old) JOIN contents ON contents.id = wanted.old
ON CONFLICT (id) DO UPDATE SET content = excluded.content;

-- name: delete_messages
DELETE FROM messages WHERE id = ANY(%s::bigint[]);

-- name: delete_contents
DELETE FROM contents WHERE id = ANY(%s::bigint[]);

-- name: put_session_state
INSERT INTO session_states (slot, session_key, session_id, state, updated_at) VALUES (%s, %s, %s, %b, %s)
ON CONFLICT (slot, session_key) DO UPDATE SET session_id = excluded.session_id, state = excluded.state, updated_at = excluded.updated_at;

-- name: delete_session_state
DELETE FROM session_states WHERE slot = %s AND session_key = %s;

-- name: forget_duplicates
DELETE FROM duplicates WHERE slot = %s AND until <= %s;

-- name: put_duplicates
INSERT INTO duplicates (slot, key, until) SELECT %s, * FROM unnest(%s::text[], %s::bigint[])
ON CONFLICT (slot, key) DO UPDATE SET until = excluded.until;

-- name: delete_duplicates
DELETE FROM duplicates WHERE slot = %s AND key = ANY(%s::text[]);

-- name: put_position
UPDATE position SET position = %s;

-- name: is_replicated
SELECT current_setting('synchronous_standby_names') <> '';
