"""Resources and prompts of an MCP server as records: bounds, secrets, duplicates, control characters."""

from palyra.core.redaction.redactor import Redactor
from palyra.core.tool.mcp import McpArgument, McpPrompt, McpResource
from palyra.tools.mcp.adopt import AdoptionTerms, adopt
from palyra.tools.mcp.offers import (
    MAX_ABOUT_CHARS,
    MAX_ARGUMENTS,
    MAX_LEFT_OUT,
    MAX_OFFERS,
    MAX_URI_CHARS,
    Offers,
    adopt_offers,
)
from tests.rows import every_row

SECRET = "ghp_" + "a1B2" * 9
REDACT = Redactor([]).redact_text


def take(*offers: McpResource | McpPrompt) -> Offers:
    """The offers of a server called `files`."""
    return adopt_offers(
        "files",
        [each for each in offers if isinstance(each, McpResource)],
        [each for each in offers if isinstance(each, McpPrompt)],
        REDACT,
    )


def test_usable_offers_are_taken_with_their_server() -> None:
    """Addresses, names and arguments stay exactly as the server wrote them."""
    resource = McpResource(uri="file:///a%20b/\u00e4.txt", name="a", size=3)
    prompt = McpPrompt(server="", name="re-view", arguments=(McpArgument(name="code"),))
    found = take(resource, prompt)
    assert (resource,) == found.resources
    assert ("files", "re-view", "code") == (
        found.prompts[0].server,
        found.prompts[0].name,
        found.prompts[0].arguments[0].name,
    )
    assert {} == found.left_out
    assert ["read_resource", "get_prompt"] == [each.name for each in found.tools()]
    assert [] == take().tools()


@every_row(
    ("uri", "reason"),
    [
        ("", "no URI"),
        ("no scheme", "no URI"),
        ("note:", "no URI"),
        ("note://a b", "no URI"),
        ("note://a\nb", "no URI"),
        ("note://a\x1b[2J", "no URI"),
        ("note://a\u202eb", "no URI"),
        ("note://\ud800", "no URI"),
        ("note://" + "x" * MAX_URI_CHARS, "characters"),
        (f"note://{SECRET}", "secret"),
    ],
)
def test_an_unusable_address_is_left_out(uri: str, reason: str) -> None:
    """Blanks, controls, overlong addresses and secrets have a reason, shown without controls."""
    found = take(McpResource(uri=uri), McpResource(uri="note://ok"))
    assert ["note://ok"] == [each.uri for each in found.resources]
    ((name, why),) = found.left_out.items()
    assert reason in why
    assert name.isprintable()


@every_row(
    "prompt",
    [
        McpPrompt(server="", name=""),
        McpPrompt(server="", name="a b"),
        McpPrompt(server="", name="../x"),
        McpPrompt(server="", name="x" * 65),
        McpPrompt(server="", name=SECRET),
        McpPrompt(server="", name="x", arguments=(McpArgument(name="a b"),)),
        McpPrompt(server="", name="x", arguments=(McpArgument(name="a"),) * 2),
        McpPrompt(
            server="",
            name="x",
            arguments=tuple(McpArgument(name=f"a{n}") for n in range(MAX_ARGUMENTS + 1)),
        ),
    ],
)
def test_an_unusable_prompt_is_left_out(prompt: McpPrompt) -> None:
    """A name that could not be typed as a command is none."""
    found = take(prompt)
    assert () == found.prompts
    assert 1 == len(found.left_out)


def test_the_first_of_two_offers_of_one_name_counts() -> None:
    """A later duplicate replaces nothing."""
    found = take(McpResource(uri="a:b", name="first"), McpResource(uri="a:b", name="second"))
    assert ["first"] == [each.name for each in found.resources]
    assert {"a:b": "its name occurs twice"} == found.left_out


def test_texts_are_cut_redacted_and_shown_without_controls() -> None:
    """Descriptions cannot move a cursor, hide text or hold a secret."""
    words = f"see \x1b[31m\u202e {SECRET} " + "x " * MAX_ABOUT_CHARS
    found = take(
        McpResource(uri="a:b", name=words, description=words, mime_type=words),
        McpPrompt(
            server="", name="p", description=words,
            arguments=(McpArgument(name="a", description=words),),
        ),
    )  # fmt: skip
    texts = [
        found.resources[0].name,
        found.resources[0].description,
        found.resources[0].mime_type,
        found.prompts[0].description,
        found.prompts[0].arguments[0].description,
    ]
    for text in texts:
        assert text.isprintable()
        assert SECRET not in text
        assert len(text) < 2 * MAX_ABOUT_CHARS
        assert "see" in text


def test_lists_are_bounded() -> None:
    """Of a huge list the first part is taken; reasons are bounded as well."""
    found = take(*(McpResource(uri=f"a:{n}") for n in range(MAX_OFFERS * 3)))
    assert MAX_OFFERS == len(found.resources)
    assert {"…": f"more than {MAX_OFFERS}"} == found.left_out
    bad = take(*(McpResource(uri=f"bad {n}") for n in range(MAX_LEFT_OUT * 3)))
    assert MAX_LEFT_OUT + 1 == len(bad.left_out)


def test_the_tools_of_the_offers_have_the_operators_terms() -> None:
    """They are read-only and less than risky only if the operator trusts them to be."""
    own = take(McpResource(uri="a:b"), McpPrompt(server="", name="p")).tools()
    terms = AdoptionTerms(server="files", capabilities=("network",), read_only=("get_prompt",))
    adopted = adopt(terms, own, REDACT)
    assert {} == adopted.missing
    assert {
        "mcp:files.read_resource": ("effect", "high"),
        "mcp:files.get_prompt": ("idempotent_network", "high"),
    } == {name: (spec.tool_class, spec.risk) for name, (_, spec) in adopted.tools.items()}
    left_out = AdoptionTerms(server="files", capabilities=(), left_out=("read_resource",))
    assert {"mcp:files.get_prompt"} == set(adopt(left_out, own, REDACT).tools)
