"""Search for the tools that a provider refuses, where its words single none out.

A provider that does not take the schema of one tool refuses every request that offers it.  The search
halves the list: each question is a request of a few words with some of the tools, so it costs little
and tells whether that part is refused.  One tool of a hundred takes about fifteen questions.

Owns: nothing.  Talks to: the model.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from palyra.core.journal.records import Usage
from palyra.core.model.messages import ModelFailure, ModelRequest, Sampling, UserMessage
from palyra.core.ports import LanguageModel
from palyra.core.run.refused_items import oddity

MAX_QUESTIONS = 24  # of one search; then all of the part that is left is refused
_ANSWER_TOKENS = 16

Tools = Sequence[dict[str, Any]]


class RefusedTools(NamedTuple):
    """Names of the tools that the provider refuses, and the usage of the questions."""

    names: tuple[str, ...]
    usage: Usage


async def find_refused_tools(model: LanguageModel, request: ModelRequest) -> RefusedTools:
    """Return the tools of the request that the provider refuses, the likeliest asked about first.

    None, if they are not the cause, if only their number or combination is, or if a question failed
    for another reason.  Cancellation: the question is abandoned.
    """
    search = _Search(model, request)
    likeliest = sorted(request.tools, key=lambda tool: -oddity(tool["parameters"]))
    try:
        found = await search.find(likeliest)
    except ModelFailure:
        found = []
    return RefusedTools(tuple(tool["name"] for tool in found), search.usage)


class _Search:
    def __init__(self, model: LanguageModel, request: ModelRequest) -> None:
        self._model = model
        self._request = request
        self._left = MAX_QUESTIONS
        self.usage = Usage()

    async def find(self, tools: Tools) -> Tools:
        """Return those that are refused; none, if all others are refused without them as well."""
        if not tools or not await self._is_refused(tools):
            return []
        found = await self._divide(tools)
        rest = [tool for tool in tools if tool not in found]
        return [] if rest and await self._is_refused(rest) else found

    async def _divide(self, tools: Tools) -> Tools:
        """Return the refused ones of a part that is refused."""
        if len(tools) == 1 or self._left <= 0:
            return tools
        first, second = tools[: len(tools) // 2], tools[len(tools) // 2 :]
        if not await self._is_refused(first):
            return await self._divide(second)
        found = await self._divide(first)
        if self._left > 0 and await self._is_refused(second):
            return [*found, *await self._divide(second)]
        return found

    async def _is_refused(self, tools: Tools) -> bool:
        """Ask.  Raises ModelFailure for any other failure than a refusal of the request."""
        self._left -= 1
        question = msgspec.structs.replace(
            self._request,
            instructions="Answer with one word.",
            messages=(UserMessage("Say ok."),),
            tools=tuple(tools),
            pictures={},
            sampling=Sampling(max_output_tokens=_ANSWER_TOKENS),
            json_mode=False,
            must_call=False,
            volatile=0,
        )
        try:
            answer = await self._model.stream(question, lambda _delta: None)
        except ModelFailure as failure:
            if failure.failure_class != "invalid_request":
                raise
            return True
        self.usage = self.usage.plus(answer.usage)
        return False
