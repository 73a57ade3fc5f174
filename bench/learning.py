"""Measure what learning finds: precision and recall on a planted log, and the distribution of scores.

    python bench/learning.py

The log is `tests/core/learning/corpus.py`.  A plant counts as found if it is proposed; every other
proposal is wrong.  No model is asked.  The rules were written with this log at hand, so the figures
are an upper bound: of 20 plants and 20 other sentences that were new to them, they proposed 16 and
1.
"""

import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from palyra.core.learning.candidates import LearningRules
from palyra.core.learning.evidence import find_evidence, is_supported
from palyra.core.learning.extraction import RunTexts, extract
from tests.core.learning.corpus import (
    CONTROLS,
    EVERYDAY,
    FACTS,
    PASSING,
    PREFERENCES,
    TRAPS,
    UNMARKED,
    falsify,
    rephrase,
)

RULES = LearningRules(mode="auto")
STEP_BPS = 500


def read(text: str) -> tuple[str, int] | None:
    """Return kind and score of the best candidate of a message."""
    texts = RunTexts(principal="a", session_id="s", messages=((0, text),), trust="trusted_local")
    found = extract(texts, ()).found
    return (found[0].kind, found[0].score_bps) if found else None


def count(texts: Iterable[str]) -> tuple[int, int, Counter[int]]:
    """Return how many are proposed, how many are sure, and the scores in steps."""
    proposed = sure = 0
    scores: Counter[int] = Counter()
    for text in texts:
        best = read(text)
        if best is None:
            continue
        limits = RULES.preference if best[0] == "preference" else RULES.fact
        proposed += best[1] >= limits.review_bps
        sure += limits.auto_bps is not None and best[1] >= limits.auto_bps
        scores[best[1] // STEP_BPS * STEP_BPS] += 1
    return proposed, sure, scores


def count_supported() -> str:
    """Return how many rephrasings and falsifications of the plants their sentences support."""
    plants = [(each, find_evidence(each, each)) for each in (*FACTS, *PREFERENCES, *EVERYDAY)]
    true = [is_supported(text, own) for plant, own in plants for text in rephrase(plant)]
    false = [is_supported(text, own) for plant, own in plants for text in falsify(plant)]
    return (
        f"a model's texts: {sum(true)} of {len(true)} true ones are supported,"
        f" {sum(false)} of {len(false)} false ones"
    )


def main() -> None:
    """Print the figures."""
    groups = {
        "facts": FACTS,
        "preferences": PREFERENCES,
        "without a sign": UNMARKED,
        "everyday": EVERYDAY,
        "traps": TRAPS,
        "passing": PASSING,
        "controls": CONTROLS,
    }
    results = {name: count(texts) for name, texts in groups.items()}
    print(f"{'group':16} {'messages':>8} {'proposed':>8} {'sure':>5}  scores (bps: messages)")
    for name, (proposed, sure, scores) in results.items():
        shown = ", ".join(f"{score}: {number}" for score, number in sorted(scores.items()))
        print(f"{name:16} {len(groups[name]):8} {proposed:8} {sure:5}  {shown}")
    planted = [results[name] for name in ("facts", "preferences", "everyday")]
    others = [results[name] for name in ("traps", "passing", "without a sign")]
    right, applied = sum(each[0] for each in planted), sum(each[1] for each in planted)
    wrong, misapplied = sum(each[0] for each in others), sum(each[1] for each in others)
    plants = len(FACTS) + len(PREFERENCES) + len(EVERYDAY)
    print(f"candidates: precision {right / (right + wrong):.1%}, recall {right / plants:.1%}")
    print(
        f"applied by themselves: precision {applied / (applied + misapplied):.1%}, {applied} right"
    )
    print(f"wrong applications on {len(CONTROLS)} controls: {results['controls'][1]}")
    print(count_supported())


if __name__ == "__main__":
    main()
