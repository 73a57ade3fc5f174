"""The first look: it hides nothing from the rules, and nothing else is compiled without need."""

import re

import pytest

from palyra.core.redaction import scanner as scanner_module
from palyra.core.redaction.grammar import Rule, units
from palyra.core.redaction.patterns import RULES
from palyra.core.redaction.percent_encoded import encoded_rules
from palyra.core.redaction.redactor import Redactor
from palyra.core.redaction.scanner import Expression, FirstLook, Part, Scanner, look_pattern
from tests.rows import every_row


@every_row("rule", [*RULES, *encoded_rules(RULES)])
def test_a_first_look_matches_wherever_the_rule_does(rule: Rule) -> None:
    """Counts end early in it and boundaries may be missing, so it sees no less than the rule."""
    look = FirstLook([look_pattern([rule._replace(hint="")])])
    whole = re.compile(rule.shape.encode("latin-1"))
    for text in shortest_and_longer(rule.before + rule.rest):
        if whole.search(b" " + text):
            assert look(b" " + text)
            assert look(b'"' + text)


def shortest_and_longer(shape: str) -> list[bytes]:
    """Two samples of a shape: the first choice of each unit, as often as it must be and once more."""
    samples = ["", ""]
    for unit, quantifier in units(shape):
        least = re.match(r"\{(\d+)", quantifier)
        count = int(least[1]) if least else int(quantifier in {"", "+"})
        choices = (
            chr(byte)
            for byte in (*b"Aa0 -_", *range(256))
            if unit.startswith("(") or re.fullmatch(unit.encode("latin-1"), bytes([byte]))
        )
        first = next(choices, "")  # a boundary has no character
        piece = unit[3:-1].split("|")[0] if unit.startswith("(") else first
        samples = [samples[0] + piece * count, samples[1] + piece * (count + bool(quantifier))]
    return [sample.encode("latin-1") for sample in samples]


def test_a_flag_is_found_when_its_blank_is_encoded() -> None:
    """The first look asks for the blank behind a flag in its encoded form as well."""
    redactor = Redactor([])
    value = "Hunter" + "22xyzQ"
    assert redactor.redact_text(f"-PWD%20{value}")[0] == "-PWD%20[redacted:password]"
    assert redactor.redact_text("-PWD%20words")[0] == "-PWD%20words"


def test_nothing_is_compiled_before_a_text_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start pays for the first look alone, and only parts that it names are compiled."""
    compiled: list[str] = []
    compile_one = scanner_module.compile_bytes

    def count(pattern: str) -> Expression:
        compiled.append(pattern)
        return compile_one(pattern)

    monkeypatch.setattr(scanner_module, "compile_bytes", count)
    scanner = Scanner(RULES)
    assert not compiled
    assert scanner.find(b"plain words") is None
    assert not compiled
    assert scanner.find(b"x AKIA" + b"IOSFODNN7EXAMPLE y") is not None
    assert len(compiled) == 1


def test_a_match_that_fits_no_single_rule_is_a_secret_whole() -> None:
    """When the engine cannot say which rule of a part matched, all of the match is replaced."""
    part = Part([Rule("one", "", "a=", "[0-9]{3}"), Rule("two", "", "b=", "[0-9]{3}")])
    [known] = part.spans(b"b=123", 0, 5)
    assert ("two", 2, 5) == (known.rule.name, known.start, known.end)
    [unknown] = part.spans(b"xx c=123", 3, 8)
    assert ("secret", 3, 8) == (unknown.rule.name, unknown.start, unknown.end)
