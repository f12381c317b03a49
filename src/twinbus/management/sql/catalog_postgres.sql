-- The catalog of a namespace whose messaging stores are in PostgreSQL, with a lease and an epoch as a store has them.

CREATE TABLE catalog (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), version INTEGER NOT NULL, store_count INTEGER NOT NULL);

CREATE TABLE epoch (one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one), epoch BIGINT NOT NULL);
INSERT INTO epoch (epoch) VALUES (0);

CREATE TABLE lease (
    one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    owner TEXT NOT NULL,
    address TEXT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);
INSERT INTO lease (owner, address, until) VALUES ('', '', '-infinity');

CREATE TABLE namespace (
    one BOOLEAN PRIMARY KEY DEFAULT TRUE CHECK (one),
    name TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    modified_at BIGINT NOT NULL,
    last_entity_id BIGINT NOT NULL
);

CREATE TABLE entities (
    id BIGINT PRIMARY KEY,
    key TEXT COLLATE "C" NOT NULL UNIQUE,
    kind TEXT NOT NULL,
    description TEXT NOT NULL,
    created_at BIGINT NOT NULL,
    updated_at BIGINT NOT NULL,
    first_store INTEGER
);

CREATE TABLE rules (
    position BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    subscription BIGINT NOT NULL REFERENCES entities (id) ON DELETE CASCADE,
    key TEXT COLLATE "C" NOT NULL,
    description TEXT NOT NULL,
    UNIQUE (subscription, key)
);

CREATE TABLE access_rules (key TEXT COLLATE "C" PRIMARY KEY, description TEXT NOT NULL);

-- Gone is not empty: a store that has been in use is opened only where it is found.
CREATE TABLE stores (number INTEGER PRIMARY KEY, identity TEXT NOT NULL, is_created BOOLEAN NOT NULL DEFAULT FALSE);
