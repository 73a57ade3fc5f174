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


def test_money_may_be_in_dollars(tmp_path: Path) -> None:
    """Prices and limits of budgets are read in dollars and in micro-dollars."""
    text = '[[usage.prices]]\nmodel = "p/m"\ninput = "$3.00"\noutput = 15000000\ncached_input = "$0.30"\n'
    limits = '[[usage.budgets]]\nid = "day"\nmetric = "usd_micros"\nsoft = "$4.50"\nhard = "$5"\n'
    config = written(tmp_path, text + limits)
    used = Usage(input_tokens=2, cached_tokens=1, output_tokens=1)
    assert 19 == read_prices(config).cost("p/m", used, 0)  # 3 + 0.3 + 15, rounded up
    assert [(4_500_000, 5_000_000)] == [(each.soft, each.hard) for each in read_budgets(config)]


def test_dollars_are_no_tokens(tmp_path: Path) -> None:
    """A limit in dollars of a budget that counts tokens is refused, with the setting to change."""
    with pytest.raises(InvalidParams, match=r"'day' .*metric = .usd_micros"):
        read_budgets(written(tmp_path, '[[usage.budgets]]\nid = "day"\nhard = "$5"\n'))


def test_published_prices_come_with_the_provider(tmp_path: Path) -> None:
    """A configured preset has the prices of the table; an entry of the configuration hides them."""
    provider = '[models]\nproviders = [{ name = "openai" }]\n'
    used = Usage(input_tokens=1_000_000)
    costs = [
        read_prices(written(tmp_path, text)).cost("openai/gpt-5-mini", used, NEW_YEAR_MS)
        for text in (
            provider,
            f'{provider}[[usage.prices]]\nmodel = "openai/*"\ninput = 7\noutput = 7\n',
            "",
        )
    ]
    assert [250_000, 7, None] == costs
