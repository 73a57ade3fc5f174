"""What redaction costs: the clean path, prose, streams, and the worst text for every rule.

Prints one JSON line.  `--check` ends with status 1 when a limit below is passed.
"""

import json
import sys
import time
import timeit
from collections.abc import Callable, Iterator
from functools import partial

from palyra.core.redaction.grammar import Rule, units
from palyra.core.redaction.patterns import RULES
from palyra.core.redaction.redactor import Redactor, StreamRedactor
from palyra.core.redaction.scanner import Expression, compile_bytes

TEXT_BYTES = 20_000
LIMITS = {"clean_400_bytes_us": 3.0, "prose_mb_s": 20.0, "worst_rule_20_kb_ms": 5.0}
KNOWN = [f"{index}-operator_token/with+signs~0123456789abcdef" for index in range(5)]
PROSE = "The quick brown fox jumps over the lazy dog. See https://example.com/a?b=c - or not.\n"
PAYLOAD = (
    b'{"call_id":"call_018f3c1e-5b7a-7bbb-8ccc-0123456789ab","tool":"read_file","arguments":'
    b'{"path":"docs/architecture.md","first_line":10,"last_line":40},"digest":"'
    + b"0123456789abcdef" * 4
    + b'","class":"read_only_safe","coercions":[],"note":"'
    + b"What a user of such a daemon would expect to see, in plain words. " * 2
)[:398] + b'"}'


def best_s(action: Callable[[], object], times: int = 1, rounds: int = 7) -> float:
    """CPU seconds one call takes, in the best round: the others measure the neighbours."""
    return min(timeit.repeat(action, timer=time.process_time, number=times, repeat=rounds)) / times


def example(rule: Rule) -> str:
    """The shortest text the rule's shape matches, roughly: the first choice of every unit."""
    return "".join(
        _choice(unit) * _least(quantifier)
        for unit, quantifier in units(rule.before + rule.secret + rule.after)
    )


def _choice(unit: str) -> str:
    if unit.startswith("(?:"):
        return " "
    if unit.startswith("["):
        return unit[1] if unit[1] not in {"^", "\\"} else " "
    return unit[-1]


def _least(quantifier: str) -> int:
    digits = quantifier.strip("{}").partition(",")[0]
    return int(digits) if digits.isdigit() else int(quantifier in {"", "+"})


def hostile_texts(rule: Rule) -> Iterator[bytes]:
    """Matches, near misses and beginnings of one rule without end, with and without boundaries."""
    whole = example(rule)
    pieces = (whole, whole[:-1], whole[: len(whole) // 2], whole[:4])
    for piece in (*filter(None, pieces), f"-{whole[:5]}-AKIA" + "0" * 16):
        for between in ("", " ", "-", "\n", "://"):
            text = (piece + between) * (TEXT_BYTES // len(piece + between) + 1)
            yield text[:TEXT_BYTES].encode()
    yield (whole[:-1] + whole[-1] * TEXT_BYTES)[:TEXT_BYTES].encode()


def scan(expression: Expression, data: bytes) -> int:
    """How many matches there are."""
    return sum(1 for _ in expression.finditer(data))


def worst_rule_ms() -> tuple[float, str]:
    """The slowest expression, alone, on the worst text for it."""
    worst = (0.0, "")
    for rule in (*RULES, *ENCODED):
        expression = compile_bytes(rule.shape)
        for data in hostile_texts(rule):
            taken_s = best_s(partial(scan, expression, data), rounds=3)
            worst = max(worst, (taken_s * 1000, rule.name))
    return worst


def worst_text_ms(redactor: Redactor) -> float:
    """Everything there is on the worst text for any rule: thousands of secrets in a row."""
    texts = {text.decode() for rule in RULES for text in hostile_texts(rule)}
    return max(best_s(partial(redactor.redact_text, text), rounds=2) for text in texts) * 1000


def stream_delta_us(redactor: Redactor) -> float:
    """One word of prose through a stream."""
    words = [f" {word}" for word in PROSE.split() * 20]
    stream = StreamRedactor(redactor)
    return best_s(lambda: [stream.feed(word) for word in words]) / len(words) * 1e6


def measure() -> dict[str, float | str]:
    redactor = Redactor(KNOWN)
    prose = PROSE * 2000
    secret = PAYLOAD.replace(b"plain words", b"AKIA" + b"IOSFODNN7EXAMPLE")
    assert redactor.redact_bytes(PAYLOAD) == (PAYLOAD, False)
    assert redactor.redact_bytes(secret)[1]
    rule_ms, rule = worst_rule_ms()
    return {
        "clean_400_bytes_us": round(best_s(lambda: redactor.redact_bytes(PAYLOAD), 2000) * 1e6, 2),
        "secret_400_bytes_us": round(best_s(lambda: redactor.redact_bytes(secret), 200) * 1e6, 1),
        "prose_mb_s": round(len(prose) / best_s(lambda: redactor.redact_text(prose), 3) / 1e6, 1),
        "stream_delta_us": round(stream_delta_us(redactor), 2),
        "worst_rule_20_kb_ms": round(rule_ms, 2),
        "worst_rule": rule,
        "worst_text_20_kb_ms": round(worst_text_ms(redactor), 2),
    }


def main() -> int:
    result = measure()
    print(json.dumps({"bench": "redact", **result}))
    is_good = (
        float(result["clean_400_bytes_us"]) <= LIMITS["clean_400_bytes_us"]
        and float(result["prose_mb_s"]) >= LIMITS["prose_mb_s"]
        and float(result["worst_rule_20_kb_ms"]) <= LIMITS["worst_rule_20_kb_ms"]
    )
    return 0 if is_good or "--check" not in sys.argv else 1


if __name__ == "__main__":
    sys.exit(main())
