"""Pages that only we have, as JSON: health, metrics, faults on purpose, SAS rules, the backlog, counts of message sessions, the operations log."""
