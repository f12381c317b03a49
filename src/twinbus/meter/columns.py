"""The columns of the operations log by name, for those who read it with something else than pyarrow."""

OP_ID = "op_id"
AT = "at"
NAMESPACE = "namespace"
ENTITY = "entity"
ENTITY_TYPE = "entity_type"
FRAGMENT = "fragment"
CAUSE = "cause"
OPERATIONS = "operations"
MESSAGES = "messages"
BYTES = "bytes"
UNITS = "units"
PATH = "path"
WHO = "who"
MESSAGE_ID = "message_id"
SEQUENCE_NUMBER = "sequence_number"
SCHEMA_VERSION = "schema_version"

COLUMNS = (
    OP_ID,
    AT,
    NAMESPACE,
    ENTITY,
    ENTITY_TYPE,
    FRAGMENT,
    CAUSE,
    OPERATIONS,
    MESSAGES,
    BYTES,
    UNITS,
    PATH,
    WHO,
    MESSAGE_ID,
    SEQUENCE_NUMBER,
    SCHEMA_VERSION,
)
"""In the order of the files."""

CURRENT_VERSION = 1
