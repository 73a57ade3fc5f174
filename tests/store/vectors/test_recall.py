"""Recall of labelled evidence, as `bench/recall.py` measures it."""

import importlib
import os
from pathlib import Path
from types import ModuleType

import pytest

from palyra.core.ports import Embedder
from palyra.models.memory_embedders import HashedEmbedder, MiniLmEmbedder
from tests.optional import needs

ROOT = Path(__file__).resolve().parents[3]
CORPUS = Path(os.environ.get("PALYRA_CORPORA", "corpora")) / "locomo"
MINILM = os.environ.get("PALYRA_MINILM")

pytestmark = [pytest.mark.real, needs("LoCoMo", is_found=CORPUS.is_dir())]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The benchmark as a module."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    return importlib.import_module("recall")


def find_lower(
    bench: ModuleType, embedder: Embedder, least: dict[str, float]
) -> dict[str, tuple[float, float]]:
    """Measured and least value of what is below its least value."""
    way = bench.Ours("under_test", bench.Remembering(embedder))
    found = bench.measure_recall(way, bench.read_corpus(CORPUS))
    return {name: (found[name], value) for name, value in least.items() if found[name] < value}


def test_recall_without_a_model_does_not_fall(bench: ModuleType) -> None:
    """Half a point below what was measured: 83.3, 54.6, 34.8 and 90.3 %."""
    least = {"recall@10": 82.8, "recall@10 multi_hop": 54.1, "all@10": 34.3, "pack": 89.8}
    assert {} == find_lower(bench, HashedEmbedder(), least)


PARTIAL = (0.0, 0.1, 0.5, 0.9, 1.0)  # shares of the items that have vectors


def find_worse(bench: ModuleType, embedder: Embedder) -> dict[str, float]:
    """Recall@10 of the partial states that is below that of words alone by half a point."""
    memories = bench.read_corpus(CORPUS)
    found = bench.measure_partial(bench.Remembering(embedder), memories, PARTIAL)
    least = found["random 0.0"]["recall@10"] - 0.5
    return {name: each["recall@10"] for name, each in found.items() if each["recall@10"] < least}


@pytest.mark.slow
def test_a_half_embedded_memory_without_a_model_is_no_worse_than_words(bench: ModuleType) -> None:
    """Whichever items have vectors already: a random share, the newest or the oldest."""
    assert {} == find_worse(bench, HashedEmbedder())


@pytest.mark.slow
@needs("MiniLM", is_found=MINILM is not None)
def test_a_half_embedded_memory_with_minilm_is_no_worse_than_words(bench: ModuleType) -> None:
    """A cosine of 0 for each missing one would lose half of the evidence: 82 to 43 %."""
    assert {} == find_worse(bench, MiniLmEmbedder(Path(str(MINILM))))


@pytest.mark.slow
@needs("MiniLM", is_found=MINILM is not None)
def test_recall_with_minilm_does_not_fall(bench: ModuleType) -> None:
    """Half a point below what was measured: 87.5, 63.0, 46.7 and 93.7 %."""
    least = {"recall@10": 87.0, "recall@10 multi_hop": 62.5, "all@10": 46.2, "pack": 93.2}
    assert {} == find_lower(bench, MiniLmEmbedder(Path(str(MINILM))), least)
