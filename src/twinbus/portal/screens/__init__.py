"""The screens: a visit in, a page out.

overview        every namespace: health, stores, rates, what needs a person
entities        the tree; create, edit and delete, with fields of property_fields
rules           the rules of a subscription, which rule_list reads, and the editor that tries them
entity          one entity: fragments, rates, settings; tabs leads to its other pages
messages        browse, search, one message, purge
sending         send, edit and resend, JSON lines up and down
sessions        message sessions and their state
held_back       scheduled and deferred messages
dead_letters    grouped; preview and repair
stores          stores and faults
pairing         two namespaces: backlog, syphon, rehearsal
bill            month to date, estimate, what-if, one message
operations      what operations logs say, for both
jobs            running work
login           a key typed in
live            server-sent events
"""

from twinbus.portal.screens import (
    bill,
    dead_letters,
    entities,
    entity,
    held_back,
    jobs,
    messages,
    overview,
    pairing,
    rules,
    sending,
    sessions,
    stores,
)

ROUTES = (
    *overview.ROUTES,
    *entities.ROUTES,
    *rules.ROUTES,
    *entity.ROUTES,
    *messages.ROUTES,
    *sending.ROUTES,
    *sessions.ROUTES,
    *held_back.ROUTES,
    *dead_letters.ROUTES,
    *stores.ROUTES,
    *pairing.ROUTES,
    *bill.ROUTES,
    *jobs.ROUTES,
)
