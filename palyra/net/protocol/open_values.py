"""Fields with a list of values that a newer daemon may extend.

A client must not fail on a value it does not know.  Such a field is therefore a plain string for
the decoder; the published schema lists the values of this version, as it would for a Literal.
"""

from typing import Any, get_args

import msgspec


def known(values: object) -> msgspec.Meta:
    """Annotation of a string field that lists the values of that Literal in the schema."""
    return msgspec.Meta(extra_json_schema={"enum": sorted(get_args(values))})


def render_enums(schema: Any) -> Any:  # noqa: ANN401 - any JSON
    """Drop `"type": "string"` where there is an enumeration: the schema of a Literal has no type."""
    if isinstance(schema, list | tuple):
        return [render_enums(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    rendered = {name: render_enums(each) for name, each in schema.items()}
    if rendered.get("type") == "string" and isinstance(rendered.get("enum"), list):
        del rendered["type"]
    return rendered
