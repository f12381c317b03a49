-- From version 2 of the tables to version 3: rows get checksums, fragments their sums. The functions are those in
-- twinbus.store.checksums. What was damaged before cannot be noticed: it is taken as it is found.

ALTER TABLE messages ADD COLUMN content_sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE messages ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE messages SET content_sum = content_sum((SELECT content FROM contents WHERE contents.id = messages.id));
UPDATE messages SET checksum = values_sum(id, state, due_at, expires_at, delivery_count, enqueued_at, enqueued_number, size,
  content_sum, session_id);

ALTER TABLE session_states ADD COLUMN content_sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session_states ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE session_states SET content_sum = content_sum(state);
UPDATE session_states SET checksum = values_sum(slot, updated_at, content_sum, session_key, session_id);

ALTER TABLE duplicates ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE duplicates SET checksum = values_sum(slot, until, key);

ALTER TABLE fragments ADD COLUMN active_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN deferred_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN scheduled_count INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN message_sums INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN state_sums INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN duplicate_sums INTEGER NOT NULL DEFAULT 0;
ALTER TABLE fragments ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;
UPDATE fragments SET
  active_count = counted.active, deferred_count = counted.deferred, scheduled_count = counted.scheduled,
  size_bytes = counted.size, message_sums = counted.sums
FROM (
    SELECT slot, sum(state = 0) AS active, sum(state = 1) AS deferred, sum(state = 2) AS scheduled, sum(size) AS size,
      sum(checksum) AS sums FROM messages GROUP BY slot
) AS counted WHERE counted.slot = fragments.slot;
UPDATE fragments SET state_sums = counted.sums
FROM (SELECT slot, sum(checksum) AS sums FROM session_states GROUP BY slot) AS counted WHERE counted.slot = fragments.slot;
UPDATE fragments SET duplicate_sums = counted.sums
FROM (SELECT slot, sum(checksum) AS sums FROM duplicates GROUP BY slot) AS counted WHERE counted.slot = fragments.slot;
UPDATE fragments SET checksum = values_sum(slot, fragment, last_number, active_count, deferred_count, scheduled_count,
  size_bytes, message_sums, state_sums, duplicate_sums);

ALTER TABLE journal ADD COLUMN schema_sum INTEGER NOT NULL DEFAULT 0;
ALTER TABLE journal ADD COLUMN fragment_sums INTEGER NOT NULL DEFAULT 0;
ALTER TABLE journal ADD COLUMN checksum INTEGER NOT NULL DEFAULT 0;

CREATE TABLE damaged (
    found INTEGER PRIMARY KEY,
    place TEXT NOT NULL,
    what TEXT NOT NULL,
    facts TEXT NOT NULL,
    content BLOB,
    is_accepted INTEGER NOT NULL DEFAULT 0
);
