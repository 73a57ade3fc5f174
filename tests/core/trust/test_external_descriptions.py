"""Schemas of tools that other parties describe: rules without sentences."""

from palyra.core.trust.external_descriptions import find_disguise, only_rules, without_words

SCHEMA = {
    "$defs": {"A": {"type": "string", "description": "a word"}},
    "properties": {
        "description": {"description": "a name", "anyOf": [{"title": "x", "type": "null"}, True]},
        "any": True,
    },
    "items": {"description": "each", "format": "uri", "type": "string"},
}


def test_rules_stay_without_annotations() -> None:
    """Annotations, `format` and unknown keywords are removed in every subschema; names stay."""
    assert {
        "$defs": {"A": {"type": "string"}},
        "properties": {"description": {"anyOf": [{"type": "null"}, True]}, "any": True},
        "items": {"type": "string"},
    } == only_rules(SCHEMA)


def test_sentences_are_removed() -> None:
    """Descriptions are removed in every subschema; other annotations stay."""
    assert {
        "$defs": {"A": {"type": "string"}},
        "properties": {
            "description": {"anyOf": [{"title": "x", "type": "null"}, True]},
            "any": True,
        },
        "items": {"format": "uri", "type": "string"},
    } == without_words(SCHEMA)


def test_a_schema_that_hides_text_is_refused() -> None:
    """A character that is not visible is a reason to refuse the schema."""
    assert not find_disguise(SCHEMA)
    assert "hide" in find_disguise({"properties": {"a\u202e": True}})
