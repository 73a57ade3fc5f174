"""Forms that the stemmer does not join."""

from palyra.core.memory.word_forms import forms_of
from tests.rows import every_row


@every_row(
    ("word", "form"),
    [
        ("buy", "bought"),
        ("bought", "buy"),
        ("buys", "bought"),
        ("purchased", "bought"),
        ("go", "went"),
        ("children", "child"),
        ("kids", "children"),
        ("mom", "mother"),
        ("photos", "picture"),
    ],
)
def test_a_word_has_the_forms_of_its_class(word: str, form: str) -> None:
    """In both directions, also behind a regular ending, and itself first."""
    found = forms_of(word)
    assert word == found[0]
    assert form in found
    assert len(found) == len(set(found))


@every_row("word", ["walrus", "s", "ing", "", "bored", "parse_http", "größe", "8080"])
def test_other_words_stand_alone(word: str) -> None:
    """A word without irregular forms has only itself."""
    assert (word,) == forms_of(word)


def test_classes_do_not_run_together() -> None:
    """Words that share a form keep their other forms apart."""
    assert "photo" in forms_of("pic")
    assert "vacation" not in forms_of("photo")
    assert "lain" not in forms_of("laid")
