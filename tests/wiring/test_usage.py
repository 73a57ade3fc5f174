"""Prices and budgets of the configuration: reading, errors and reloading."""

import os
from pathlib import Path

import pytest

from palyra.config.load import Config, load
from palyra.core.journal.records import BudgetRecord, Usage
from palyra.errors import InvalidParams
from palyra.wiring.usage import UsageFile, read_budgets, read_prices

PRICE = '[[usage.prices]]\nmodel = "p/*"\ninput = 1000000\noutput = 2000000\nsince = 2026-01-01\n'
BUDGET = '[[usage.budgets]]\nid = "day"\nscope = "principal"\nhard = 9\n'
NEW_YEAR_MS = 1_767_225_600_000


def written(path: Path, text: str) -> Config:
    """The configuration in a file that was just written."""
    (path / "palyra.toml").write_text(text, encoding="utf-8")
    return load(path / "palyra.toml", environ={})


def test_prices_are_read(tmp_path: Path) -> None:
    """With their day; the embedded model costs nothing by itself."""
    prices = read_prices(written(tmp_path, PRICE))
    used = Usage(input_tokens=1, output_tokens=1)
    assert [None, 3, 0] == [
        prices.cost("p/m", used, NEW_YEAR_MS - 1),
        prices.cost("p/m", used, NEW_YEAR_MS),
        prices.cost("scripted", used, 0),
    ]


def test_budgets_are_read(tmp_path: Path) -> None:
    """0 is no limit; seconds of a sliding window become milliseconds."""
    text = f'{BUDGET}[[usage.budgets]]\nid = "hour"\nwindow = "sliding"\nwindow_s = 60\nsoft = 3\n'
    assert [
        BudgetRecord(budget_id="day", scope="principal", metric="tokens", window="day", hard=9),
        BudgetRecord(
            budget_id="hour",
            scope="global",
            metric="tokens",
            window="sliding",
            window_ms=60_000,
            soft=3,
        ),
    ] == read_budgets(written(tmp_path, text))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (BUDGET + BUDGET, "two budgets have the id 'day'"),
        ('[[usage.budgets]]\nid = "a"\n', "limits nothing"),
        ('[[usage.budgets]]\nid = "a"\nhard = 1\nwindow = "sliding"\n', "needs its length"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, text: str, said: str) -> None:
    """By name, before the daemon starts."""
    with pytest.raises(InvalidParams, match=said) as refused:
        read_budgets(written(tmp_path, text))
    assert "usage.budgets" == refused.value.field


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    """Only a changed file is reloaded, and only its usage part; an error is shown until fixed."""
    path = tmp_path / "palyra.toml"
    source = UsageFile(written(tmp_path, PRICE))

    def look(text: str, number: int) -> tuple[int | None, int]:
        path.write_text(text, encoding="utf-8")
        os.utime(path, ns=(number, number))  # a clock may tick more slowly than this test
        found = source.refresh()
        if found is not None:
            source.confirm()
        return None if found is None else len(found.budgets), len(source.problems)

    assert None is source.refresh()
    assert (1, 0) == look(PRICE + BUDGET, 1)
    assert (None, 0) == look(f"{PRICE}{BUDGET}[server]\nport = 80\n", 2)
    assert (None, 1) == look("[usage]\nprizes = 1\n", 3)
    assert (None, 0) == look(PRICE + BUDGET, 4)  # as it was before it broke
    assert (0, 0) == look(PRICE, 5)
    path.unlink()
    assert (None, 1) == (source.refresh(), len(source.problems))


def test_an_unconfirmed_change_is_found_again(tmp_path: Path) -> None:
    """A change that was not confirmed is reported again, even if the file was reverted."""
    path = tmp_path / "palyra.toml"
    source = UsageFile(written(tmp_path, PRICE))
    path.write_text(PRICE + BUDGET, encoding="utf-8")
    found = source.refresh()
    assert found is not None
    assert found.budgets == getattr(source.refresh(), "budgets", None)
    path.write_text(PRICE, encoding="utf-8")
    assert () == getattr(source.refresh(), "budgets", None)
    source.confirm()
    assert None is source.refresh()
