"""The price sheet is a file people edit: what is wrong with it is said in one line that names the key."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from twinbus.cost.price_sheet_file import EXAMPLE, example_text, parse_price_sheet, read_price_sheet
from twinbus.errors import ArgumentError


def test_the_shipped_sheet_says_that_it_is_an_example() -> None:
    sheet = read_price_sheet(None)
    assert sheet.is_example
    assert "an example, not today's prices" in sheet.caption
    assert sheet.as_of == date(2026, 1, 1)
    assert set(sheet.plans) == {"basic", "standard", "premium"}


@pytest.mark.rule("D5.2")
def test_prices_are_what_was_written() -> None:
    standard = read_price_sheet(None).plan(None)
    assert standard.name == "standard"
    assert standard.included_operations == 13_000_000
    assert standard.list_price.price == Decimal("0.80")
    assert standard.base_per_month == Decimal("10.00")


def test_an_edited_copy_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(example_text().replace("per_million = 0.80", "per_million = 0.1"))
    assert read_price_sheet(file).plan("standard").list_price.price == Decimal("0.1")


def test_a_mark_that_an_editor_put_before_the_text_is_passed_over(tmp_path: Path) -> None:
    file = tmp_path / "prices.toml"
    file.write_text(example_text(), encoding="utf-8-sig")
    assert read_price_sheet(file) == read_price_sheet(None)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("per_million = 0.80", "per_million = -1", "'plan.standard.tiers[1].per_million' must be a number, 0 or more"),
        ("per_million = 0.80", "per_million = nan", "'plan.standard.tiers[1].per_million' must be a number, 0 or more"),
        (
            "per_million = 0.80",
            "per_million = true",
            "'plan.standard.tiers[1].per_million' must be a number, 0 or more",
        ),
        ("per_million = 0.80", 'per_million = "0.80"', "'plan.standard.tiers[1].per_million' must be a number"),
        ("per_million = 0.80", "per_million = 1e13", "'plan.standard.tiers[1].per_million' is more than 1,000,000,000"),
        (
            "bandwidth_per_gb = 0.08",
            "bandwidth_per_gb = 2e9",
            "'plan.basic.bandwidth_per_gb' is more than 1,000,000,000",
        ),
        ("per_million = 0.80", "price = 1", "'plan.standard.tiers[1].price' is unknown. Use up_to, per_million."),
        (
            "up_to = 2_500_000_000",
            "up_to = 5",
            "'plan.standard.tiers[2].up_to' is 5 and must be more than 100,000,000",
        ),
        (
            "{ per_million = 0.20 }",
            "{ up_to = 9, per_million = 1 }",
            "'plan.standard.tiers[3].up_to' must be omitted",
        ),
        ("{ up_to = 100_000_000, ", "{ ", "'plan.standard.tiers[1].up_to' is missing."),
        (
            "included_operations = 13_000_000",
            "included_operations = 1.5",
            "'plan.standard.included_operations' must be",
        ),
        ("base_per_month = 680.00\n", "", "'plan.premium.base_per_month' is missing."),
        ("as_of = 2026-01-01", 'as_of = "today"', "'as_of' must be a date such as"),
        ('default_plan = "standard"', 'default_plan = "gold"', "'default_plan' is 'gold', which is none of the plans"),
        ("is_example = true", "is_example = 1", "'is_example' must be true or false."),
        ('currency = "USD"', "currency = ", "is not TOML"),
        ("included_operations = 13_000_000", f"included_operations = {'9' * 5000}", "is not TOML"),
        ("    { per_million = 0.05 },\n", "", "'plan.basic.tiers' must be a list of one or more tables"),
    ],
)
def test_a_mistake_is_named_with_file_and_key(old: str, new: str, said: str) -> None:
    text = example_text()
    assert old in text
    with pytest.raises(ArgumentError) as refused:
        parse_price_sheet(text.replace(old, new), "my.toml")
    assert str(refused.value).startswith("my.toml")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_text_that_is_no_toml_is_refused_with_its_line() -> None:
    with pytest.raises(ArgumentError, match=r"my\.toml is not TOML: .*line 2"):
        parse_price_sheet("name = 'x'\nas_of 2026\n", "my.toml")


def test_a_plan_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(ArgumentError, match=r"has no plan 'gold'\. Use basic or standard or premium"):
        read_price_sheet(None).plan("gold")


def test_a_file_that_is_not_there_is_said_to_be_made(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="twinbus cost prices --write"):
        read_price_sheet(tmp_path / EXAMPLE)
