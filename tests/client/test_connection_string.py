"""Connection strings: what is understood, what is refused, and that secrets stay inside."""

import pytest

from twinbus.client.connecting.connection_string import parse_connection_string
from twinbus.errors import ArgumentError

KEYS = "SharedAccessKeyName=root;SharedAccessKey=secret="


def test_the_emulator_flag_means_plain_tcp_and_keeps_the_port() -> None:
    parsed = parse_connection_string(f"Endpoint=sb://localhost:5673;{KEYS};UseDevelopmentEmulator=true;")
    assert (parsed.host, parsed.port, parsed.uses_tls) == ("localhost", 5673, False)
    assert (parsed.key_name, parsed.key) == ("root", "secret=")


def test_without_the_flag_the_connection_is_tls_and_keeps_the_port_too() -> None:
    parsed = parse_connection_string(f"Endpoint=sb://contoso.servicebus.windows.net:9999/;{KEYS}")
    assert (parsed.host, parsed.port, parsed.uses_tls) == ("contoso.servicebus.windows.net", 9999, True)


@pytest.mark.parametrize(("flag", "port"), [("", 5671), (";UseDevelopmentEmulator=true", 5672)])
def test_the_usual_port_needs_no_mention(flag: str, port: int) -> None:
    assert parse_connection_string(f"Endpoint=sb://contoso;{KEYS}{flag}").port == port


@pytest.mark.parametrize("value", ["True", "false", "1", ""])
def test_only_the_exact_word_true_turns_tls_off(value: str) -> None:
    assert parse_connection_string(f"Endpoint=sb://contoso;{KEYS};UseDevelopmentEmulator={value}").uses_tls


def test_names_of_fields_have_no_case_and_blanks_around_them_do_not_matter() -> None:
    parsed = parse_connection_string(" endpoint=sb://h ; SHAREDACCESSKEYNAME=n;sharedaccesskey=k ;; ")
    assert (parsed.host, parsed.key_name, parsed.key) == ("h", "n", "k")


def test_a_signature_stands_in_for_a_key() -> None:
    signature = "SharedAccessSignature sr=sb%3A%2F%2Fh&sig=x%3D&se=1&skn=n"
    assert parse_connection_string(f"Endpoint=sb://h;SharedAccessSignature={signature}").signature == signature


def test_an_entity_path_is_kept() -> None:
    assert parse_connection_string(f"Endpoint=sb://h;{KEYS};EntityPath=orders").entity_path == "orders"
    assert parse_connection_string(f"Endpoint=sb://h;{KEYS}").entity_path is None


def test_an_address_of_version_six_keeps_its_brackets_in_audiences_only() -> None:
    parsed = parse_connection_string(f"Endpoint=sb://[::1]:5680;{KEYS};UseDevelopmentEmulator=true")
    assert (parsed.host, parsed.port, parsed.authority) == ("::1", 5680, "[::1]:5680")


def test_audiences_name_only_an_unusual_port() -> None:
    assert parse_connection_string(f"Endpoint=sb://h;{KEYS}").authority == "h"
    assert parse_connection_string(f"Endpoint=sb://h:443;{KEYS}").authority == "h"
    assert parse_connection_string(f"Endpoint=sb://h:7000;{KEYS}").authority == "h:7000"


def test_who_has_a_credential_needs_the_endpoint_only() -> None:
    parsed = parse_connection_string("Endpoint=sb://contoso.servicebus.windows.net", needs_key=False)
    assert (parsed.host, parsed.port, parsed.uses_tls) == ("contoso.servicebus.windows.net", 5671, True)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "Endpoint"),
        (KEYS, "Endpoint"),
        (f"Endpoint=https://h;{KEYS}", "sb://"),
        (f"Endpoint=sb://;{KEYS}", "Endpoint"),
        (f"Endpoint=sb://h:port;{KEYS}", "valid port"),
        (f"Endpoint=sb://h:70000;{KEYS}", "valid port"),
        ("Endpoint=sb://h", "SharedAccessKeyName"),
        ("Endpoint=sb://h;SharedAccessKeyName=n", "SharedAccessKey"),
        ("Endpoint=sb://h;SharedAccessKey=k", "SharedAccessKeyName"),
        ("Endpoint=sb://h;nonsense", "Name=Value"),
    ],
)
def test_what_is_missing_or_malformed_is_named(text: str, complaint: str) -> None:
    with pytest.raises(ArgumentError, match=complaint):
        parse_connection_string(text)


def test_neither_the_value_nor_an_error_shows_a_secret() -> None:
    parsed = parse_connection_string("Endpoint=sb://h;SharedAccessKeyName=n;SharedAccessKey=hidden")
    signed = parse_connection_string("Endpoint=sb://h;SharedAccessSignature=SharedAccessSignature sig=hidden")
    assert "hidden" not in repr(parsed) + str(parsed) + repr(signed)
    with pytest.raises(ArgumentError) as caught:
        parse_connection_string("Endpoint=sb://h:port;SharedAccessKeyName=n;SharedAccessKey=hidden")
    assert "hidden" not in str(caught.value)
