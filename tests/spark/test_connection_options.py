import pickle
from pathlib import Path

import pytest

from twinbus.pipeline.connection_options import ConnectionOptions, OptionError
from twinbus.pipeline.sink.options import SinkOptions
from twinbus.pipeline.source.options import SourceOptions

SECRET = "c2VjcmV0IGtleQ=="
TEXT = f"Endpoint=sb://bus.example:5671;SharedAccessKeyName=root;SharedAccessKey={SECRET}"


def test_option_names_are_not_case_sensitive() -> None:
    options = {"CONNECTIONSTRING": TEXT, "retrytotal": "5", "operationTIMEOUT": "1.5", "queue": "orders"}
    made = ConnectionOptions.from_options(options)
    assert (made.resolve(), made.retry_total, made.operation_timeout_s) == (TEXT, 5, 1.5)


def test_a_variable_is_looked_up_where_the_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ConnectionOptions.from_options({"connectionStringEnv": "BUS"})
    with pytest.raises(OptionError, match=r"no BUS\. Set it on every node, with spark\.executorEnv\.BUS"):
        made.resolve()
    monkeypatch.setenv("BUS", TEXT)
    assert made.resolve() == TEXT


def test_a_file_is_read_where_the_connection_is_made(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    made = ConnectionOptions.from_options({"connectionStringFile": str(file)})
    with pytest.raises(OptionError, match="cannot be read here: No such file"):
        made.resolve()
    file.write_text(TEXT + "\n")
    assert made.resolve() == TEXT


def test_a_namespace_and_a_key_make_a_connection_string() -> None:
    options = {"namespace": "bus.example", "sharedAccessKeyName": "root", "sharedAccessKey": SECRET}
    text = ConnectionOptions.from_options(options).resolve()
    assert text == f"Endpoint=sb://bus.example/;SharedAccessKeyName=root;SharedAccessKey={SECRET}"


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({}, "No option says where the namespace is. Set one of connectionString, "),
        ({"connectionString": " "}, "No option says where the namespace is."),
        ({"connectionString": TEXT, "connectionStringEnv": "BUS"}, "connectionString and connectionStringEnv both say"),
        ({"connectionString": f"SharedAccessKey={SECRET}"}, "connectionString: The connection string needs Endpoint"),
        ({"connectionString": SECRET[:8]}, "connectionString: Each part of a connection string must be Name=Value"),
        ({"namespace": "bus.example", "sharedAccessKey": SECRET}, "namespace also needs sharedAccessKeyName and"),
        ({"connectionString": TEXT, "sharedAccessKey": SECRET}, "sharedAccessKey goes with namespace"),
        ({"connectionString": TEXT, "retryTotal": "many"}, "retryTotal is 'many'; it must be a number from 0 to 100"),
        ({"connectionString": TEXT, "retryTotal": "1.5"}, "retryTotal is '1.5'"),
        ({"connectionString": TEXT, "operationTimeout": "0"}, "operationTimeout is '0'; it must be a number from"),
        ({"connectionString": TEXT, "operationTimeout": "nan"}, "operationTimeout is 'nan'"),
        ({"connectionString": TEXT, "transport": "wss"}, "transport is 'wss'; it must be amqp or ws."),
        ({"connectionString": TEXT, "credential": "default"}, "credential goes with namespace, not with connectionS"),
        ({"namespace": "bus.example"}, "namespace also needs sharedAccessKeyName and sharedAccessKey, or cred"),
        ({"namespace": "bus.example", "credential": SECRET}, "credential has an unknown value; it must"),
        (
            {"namespace": "bus.example", "credential": "default", "sharedAccessKey": SECRET},
            "credential replaces sharedAccessKey. Set one of them.",
        ),
        ({"connectionStringEnv": TEXT}, "connectionStringEnv is the name of an environment variable, but has a connec"),
        ({"connectionStringFile": TEXT}, "connectionStringFile is the path of a file, but has a connection string"),
        ({"namespace": TEXT, "credential": "default"}, "namespace is HOST[:PORT], but has a connection string: use"),
        ({"connectionString": TEXT, "retryTotal": TEXT}, "retryTotal is 'Endpoint=sb://bus.example:5671;Shared"),
        ({"namespace": "bus:port", "credential": "default"}, "namespace: The Endpoint of the connection string has no"),
    ],
)
def test_wrong_options_are_reported_in_one_line_without_secrets(options: dict[str, str], complaint: str) -> None:
    with pytest.raises(OptionError) as refused:
        ConnectionOptions.from_options(options)
    text = str(refused.value)
    assert text.startswith(complaint)
    assert "\n" not in text
    assert SECRET[:8] not in text


def test_a_connection_string_in_the_place_of_an_entity_is_quoted_without_its_key() -> None:
    for kind in (SourceOptions, SinkOptions):
        with pytest.raises(OptionError, match="queue: ") as refused:
            kind.from_options({"connectionString": TEXT, "queue": TEXT})
        assert SECRET[:8] not in str(refused.value)


@pytest.mark.parametrize(
    "options",
    [
        {"connectionString": TEXT},
        {"namespace": "bus.example", "sharedAccessKeyName": "root", "sharedAccessKey": SECRET},
    ],
)
def test_secrets_travel_and_are_not_shown(options: dict[str, str]) -> None:
    made = pickle.loads(pickle.dumps(ConnectionOptions.from_options(options)))
    assert SECRET in made.resolve()
    assert SECRET not in repr(made)
    assert SECRET not in str(made)
    assert SECRET not in f"{made}"
