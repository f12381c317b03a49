"""One catalog into another, whatever databases they are in: all rows in one transaction, with the ids they had; and ids that are
left out after one was taken back to an earlier moment."""

from typing import Final

from twinbus.management.catalog import ADD_ENTITY, ADD_RULE, SET_ACCESS_RULE, CatalogDatabase

NAMESPACE: Final = "SELECT created_at, modified_at, last_entity_id FROM namespace"
SET_NAMESPACE: Final = "UPDATE namespace SET created_at = ?, modified_at = ?, last_entity_id = ?"
ENTITIES: Final = (
    "SELECT id, key, kind, description, created_at, updated_at, first_store FROM entities ORDER BY id",
    "DELETE FROM entities",
    ADD_ENTITY,
)
RULES: Final = ("SELECT subscription, key, description FROM rules ORDER BY position", "DELETE FROM rules", ADD_RULE)
ACCESS_RULES: Final = (
    "SELECT key, description FROM access_rules ORDER BY key",
    "DELETE FROM access_rules",
    SET_ACCESS_RULE,
)


def copy_catalog(source: CatalogDatabase, target: CatalogDatabase) -> int:
    """The target has what the source has and nothing else, under its own name. Returns the number of entities."""
    ((created_at, modified_at, last_entity_id),) = source.rows(NAMESPACE)
    with target.transaction() as execute:
        execute(RULES[1], ())
        for select, delete, add in (ENTITIES, RULES, ACCESS_RULES):
            execute(delete, ())
            for row in source.rows(select):
                execute(add, row)
        execute(SET_NAMESPACE, (created_at, modified_at, last_entity_id))
    return len(source.rows(ENTITIES[0]))


def is_unused(database: CatalogDatabase) -> bool:
    """Whether no entity was ever in it."""
    ((_, _, last_entity_id),) = database.rows(NAMESPACE)
    return bool(last_entity_id == 0)


def raise_last_id(database: CatalogDatabase, known: int, count: int) -> None:
    """Give out no id up to the highest of its own and `known`, nor the next `count`."""
    ((created_at, modified_at, last_entity_id),) = database.rows(NAMESPACE)
    with database.transaction() as execute:
        execute(SET_NAMESPACE, (created_at, modified_at, max(last_entity_id, known) + count))
