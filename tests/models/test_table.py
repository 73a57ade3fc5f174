"""The table of public models: its check, its lookups, and the providers it belongs to."""

from datetime import date
from typing import Any

import msgspec
import pytest

from palyra.config.sections import ModelProvider
from palyra.core.usage.prices import Prices
from palyra.models import table
from palyra.models.table import KnownModel, KnownModels, find_mistakes, known_at, known_models
from tests.rows import every_row

TODAY = date(2026, 11, 23)
ROW = KnownModel(
    provider="openai", id="m", aliases=("m-1",), window=100, input=60, output=50, vision=True,
    tools=True, json=True, prices=(table.ListedPrice(input="$2.00", output="$4.00"),),
    as_of=date(2026, 1, 1), source="owner/name@abc file.toml",
)  # fmt: skip


def test_the_table_has_no_mistakes(capsys: pytest.CaptureFixture[str]) -> None:
    """The command that checks the packaged file finds nothing, and reads more than one provider."""
    assert 0 == table.main(["--check"])
    assert ", 0 mistake(s)" in capsys.readouterr().out
    assert {"openai", "anthropic"} <= {row.provider for row in known_models().rows}


def test_other_arguments_are_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    """The module does nothing but check."""
    assert 2 == table.main([])
    assert "--check" in capsys.readouterr().err


def priced(**changes: Any) -> dict[str, Any]:
    """Change the only price of the row."""
    return {"prices": (msgspec.structs.replace(ROW.prices[0], **changes),)}


MISTAKES: list[tuple[dict[str, Any], str]] = [
    ({"provider": "nobody"}, "nobody is no preset"),
    ({"output": 101}, "must fit into the window"),
    ({"output": 0}, "must fit into the window"),
    ({"input": 101}, "must fit into the window"),
    ({"as_of": date(2026, 11, 24)}, "in the future"),
    ({"source": "from memory"}, "REPOSITORY@COMMIT FILE"),
    ({"source": "owner/name@abc"}, "REPOSITORY@COMMIT FILE"),
    ({"prices": ()}, "no price applies"),
    (priced(above=1), "no price applies"),
    (priced(since=date(2027, 1, 1)), "no price applies"),
    ({"prices": ROW.prices * 2}, "same since and above"),
    (priced(input="2.00"), "expected dollars"),
    (priced(cached_input="$2.01"), "dearer"),
    ({"aliases": ("m",)}, "two rows have this name"),
]


@every_row("changes, said", MISTAKES)
def test_each_mistake_is_found(changes: dict[str, Any], said: str) -> None:
    """A broken row is reported with the model's name."""
    found = list(find_mistakes([msgspec.structs.replace(ROW, **changes)], TODAY))
    assert any(said in each and "/m" in each for each in found), found


def test_correct_rows_have_no_mistake() -> None:
    """The row that the others break is correct; twice it takes each of its names twice."""
    assert [] == list(find_mistakes([ROW], TODAY))
    assert ["openai/m: two rows have this name", "openai/m-1: two rows have this name"] == list(
        find_mistakes([ROW, ROW], TODAY)
    )


def test_aliases_are_the_same_model() -> None:
    """An alias has the window and the price of its model; an unknown name has neither."""
    known = KnownModels([ROW])
    prices = Prices((), known.list_prices())
    assert [60, 60] == [known.routes[name].window for name in ("openai/m", "openai/m-1")]
    found = [prices.find(name, 0) for name in ("openai/m", "openai/m-1", "openai/m-2")]
    assert [2_000_000, 2_000_000, None] == [None if each is None else each.input for each in found]
    assert (ROW, None) == (known.find("openai/m-1"), known.find("openai/m-2"))


@every_row(
    ("provider", "expected"),
    [
        (ModelProvider(name="openai"), {"openai"}),
        (ModelProvider(name="openai", base_url="https://api.openai.com/v1/"), {"openai"}),
        (ModelProvider(name="openai", base_url="https://proxy.example/v1"), set()),
        (ModelProvider(name="ours", base_url="https://api.openai.com/v1"), set()),
        (ModelProvider(name="ollama"), set()),
    ],
)
def test_rows_belong_to_a_preset_at_its_own_address(
    provider: ModelProvider, expected: set[str]
) -> None:
    """Another address may have other models and prices under the same names."""
    assert expected == {row.provider for row in known_at([provider]).rows}
