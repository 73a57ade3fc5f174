"""The choice between validating a call on the event loop and in a thread."""

from typing import Any

from palyra.core.model.messages import ProposedCall
from palyra.core.model.request_options import ClientTool, client_spec
from palyra.core.policy.gate import LIGHT_CHARS, is_light
from palyra.core.tool.spec import build_catalogue
from tests.rows import every_row

TOOL = ClientTool(name="shell", description="", parameters={"type": "object"})
LONG = "x" * LIGHT_CHARS


@every_row(
    ("arguments", "is_short"),
    [
        ({"text": "hello"}, True),
        ({"argv": ["ls", "-l"]}, True),
        ({"text": LONG}, False),
        ({"argv": ["ls", LONG]}, False),
        ({LONG: 1}, False),
        ({"argv": [""] * LIGHT_CHARS}, False),
    ],
)
def test_all_of_the_arguments_count(arguments: Any, is_short: bool) -> None:  # noqa: FBT001 - a case
    """Members of lists and names of members as well."""
    call = ProposedCall(call_id="call_1", tool=TOOL.name, arguments=arguments)
    assert is_short == is_light([call], build_catalogue([client_spec(TOOL)]))
