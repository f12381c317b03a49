"""The rules of the contract by name, a sentence each: what a test can claim to prove."""

from typing import NamedTuple


class Part(NamedTuple):
    title: str
    rules: dict[str, str]


PARTITIONED = Part(
    "Partitioned messaging entities",
    {
        "A1": "Fragments: an ordinary entity lives in one store, a partitioned one in 16 fragments; chosen at creation",
        "A2": "The key that pins: session id, else partition key, else message id where duplicates are detected",
        "A3": "Placement: same key, same fragment, always; no key, round robin",
        "A4": "A store is down: keyless messages go on, pinned ones fail, nothing else notices",
        "A5": "Receive: from all fragments, and receivers cannot tell",
        "A6": "Management: changes touch every fragment or fail; counts are summed; Limited where one is ill",
        "A7": "Transactions: one key on a partitioned entity, one entity, all or nothing",
        "A8": "Batches, settlements and deferred receives stay within one fragment",
        "A9": "Message sessions: one receiver, order, state, and what losing the lock means",
        "A10": "Duplicate detection: by message id, on a partitioned entity within its key",
        "A11": "Auto-forwarding of messages and dead letters, and the transfer dead-letter queue",
        "A12": "Peek: active, deferred, scheduled and locked messages, in pages; merged on request",
        "A13": "Scheduling: cancelled by number, a new number on activation",
        "A14": "Time to live: a ceiling, locked messages, the dead-letter queue, deferred messages",
        "A15": "Dead-letter reasons",
        "A16": "Topics: rules, filters and actions",
        "A17": "Entity status and access",
        "A18": "Pings: accepted, counted and never delivered",
    },
)

PAIRED = Part(
    "Paired namespaces",
    {
        "B1": "Pairing: what is validated, which backlog queues are made, and how",
        "B2": "Healthy: sends go to the primary, unchanged",
        "B3": "Failover is per entity, after an interval of failures without a success",
        "B4": "What qualifies: timeouts and outages, and never what somebody has to act on",
        "B5": "Failed over: a backlog queue a sender, a rotation of all, and no message dropped silently",
        "B6": "Rewriting, its exact reverse, and what is refused on a good day already",
        "B7": "Pings: when, what their success and their errors mean, and recovery by hand",
        "B8": "The syphon: at least once, in order, and what becomes of messages that cannot be moved",
        "B9": "Close and fault: what one partner's end means for the other",
        "B10": "What the application accepts, and that the documentation says so",
        "B11": "Seen: events, metrics, the state of every entity, and the backlog by destination",
    },
)

BILL = Part(
    "The bill",
    {
        "D1": "Every operation is metered, with entity, fragment, size and units",
        "D2": "An idle syphon's receives",
        "D3": "Pings of an entity that is away",
        "D4": "A message that failed over costs four operations",
        "D5": "Estimate and report use one price sheet",
    },
)

PARTS = (PARTITIONED, PAIRED, BILL)
RULES = {name: text for part in PARTS for name, text in part.rules.items()}
