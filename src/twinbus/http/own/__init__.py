"""Pages that only we have, as JSON: health, metrics, faults on purpose, SAS rules, the backlog, the operations log."""
