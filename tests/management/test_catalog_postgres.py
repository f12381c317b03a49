"""What a catalog has to stand because it is in PostgreSQL."""

import threading

import psycopg
from psycopg import sql

from twinbus.management.catalog_postgres import PostgresCatalog
from twinbus.store.postgres.place import CatalogPlace, Owner


def test_a_database_that_hangs_does_not_keep_a_catalog_from_closing(postgres_dsn: str, fresh_namespace: str) -> None:
    place = CatalogPlace(postgres_dsn, fresh_namespace)
    catalog = PostgresCatalog(place, Owner.this_process(), 1, 0)
    with psycopg.connect(postgres_dsn) as other:
        # The catalog waits for this row when it gives its lease back.
        other.execute(sql.SQL("SELECT 1 FROM {}.lease FOR UPDATE").format(sql.Identifier(place.schema)))
        closing = threading.Thread(target=catalog.close, daemon=True)
        closing.start()
        closing.join(10)
        assert not closing.is_alive()
