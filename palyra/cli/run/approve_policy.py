"""`--approve`: what the command that follows a run does with its questions.  Pure."""

import re
from dataclasses import dataclass
from typing import Literal

import click

BUDGET_TOOL = "budget"  # a question of this tool is about money, not about a call
_TOOL = re.compile(r"[A-Za-z0-9_.:-]{1,128}")  # mcp:SERVER.TOOL has a colon

# Words of an answer, which name no tool; `ask` and `deny` stand alone.
_WORDS = frozenset({"allow", "all", "any", "always", "never", "none", "yes", "no", "ask", "deny"})

bell_option = click.option(
    "--bell/--no-bell",
    "rings",
    default=True,
    envvar="PALYRA_BELL",
    help="Ring at the terminal when a question waits; $PALYRA_BELL=0 turns it off everywhere.",
)

Disposition = Literal["ask", "allow", "deny", "wait", "leave"]


@dataclass(frozen=True, slots=True)
class ApprovePolicy:
    """Treatment of the questions of a run by the command that follows it.

    | `--approve` | at a terminal | without one |
    |---|---|---|
    | not given | ask | leave: exit with WAITING, the run stays open |
    | ask | ask | wait for the answer of another client |
    | deny | deny | deny |
    | TOOL,… | allow once, ask about others | allow once, deny others |

    A listed tool is allowed only where the daemon offers a wider answer too, and if no injected text
    has reached the run.  A question about a budget is never allowed.
    """

    mode: Literal["default", "ask", "deny", "tools"] = "default"
    tools: frozenset[str] = frozenset()

    def names(self, tool: str, scopes: tuple[str, ...]) -> bool:
        """True if a call of the tool may be allowed without a person, should the run be untainted."""
        return tool in self.tools and tool != BUDGET_TOOL and len(scopes) > 1

    def why_not(self, tool: str, once_because: str) -> str:
        """Return the cause of a denial by this policy, with what it says about the tool."""
        if self.mode == "deny":
            return "--approve deny: this command denies every call that needs approval"
        if tool not in self.tools or tool == BUDGET_TOOL:
            return f"not covered by --approve {','.join(sorted(self.tools))}: {tool} is not in the list"
        cause = f"this call may be allowed only once ({once_because})" if once_because else (
            "injected text has reached the run, or a file has changed"
        )  # fmt: skip
        return f"not covered by --approve {tool}: {cause}"

    def decide(self, *, is_permitted: bool, has_terminal: bool) -> Disposition:
        """Return the treatment of a question; `is_permitted`: its tool is listed, see `names`."""
        if self.mode == "deny":
            return "deny"
        if is_permitted:
            return "allow"
        if has_terminal:
            return "ask"
        without: dict[str, Disposition] = {"default": "leave", "ask": "wait", "tools": "deny"}
        return without[self.mode]


class ApproveType(click.ParamType[ApprovePolicy]):
    """Click type of `--approve`."""

    name = "policy"

    def convert(
        self,
        value: str | ApprovePolicy,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> ApprovePolicy:
        """Convert `ask`, `deny` or a list of tools; fail for anything else."""
        if isinstance(value, ApprovePolicy):
            return value
        if value == "ask":
            return ApprovePolicy("ask")
        if value == "deny":
            return ApprovePolicy("deny")
        tools = [part.strip() for part in value.split(",")]
        wrong = next((tool for tool in tools if not _TOOL.fullmatch(tool)), None)
        if wrong is not None:
            self.fail(
                f"{wrong!r} is no name of a tool: write ask, deny, or tools with commas", param, ctx
            )
        word = next((tool for tool in tools if tool.lower() in _WORDS), None)
        if word is not None and word not in {"ask", "deny"}:
            self.fail(
                f"{word!r} is no name of a tool: write ask, deny, or tools with commas", param, ctx
            )
        reserved = next((tool for tool in tools if tool in {"ask", "deny", BUDGET_TOOL}), None)
        if reserved is not None:
            self.fail(f"{reserved!r} does not go into a list of tools", param, ctx)
        return ApprovePolicy("tools", frozenset(tools))
