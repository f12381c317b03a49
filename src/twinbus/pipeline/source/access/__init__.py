"""How the source reads and takes messages of an entity.

entity_access   what the source asks of an entity
own_access      asked of twinbus, by requests of its own
plain_access    asked of any namespace, Azure too
connections     the connections of a worker, shared by its tasks
"""
