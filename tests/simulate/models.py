"""The scripted model, and what providers do to it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
import trio

from palyra.core.journal.records import Usage
from palyra.core.model.messages import (
    FAILURE_CLASSES,
    Delta,
    FinishReason,
    ModelFailure,
    ModelRequest,
    ModelTurn,
    ProposedCall,
)
from palyra.models.guarded import CallSlots, GuardedModel, ProviderLimits
from palyra.models.lexical_embeddings import EmbeddedEmbeddings
from palyra.models.scripted.model import Scripted
from palyra.wiring.models import Modelset
from tests.simulate.standing import SPARE
from tests.simulate.trace import Planted

if TYPE_CHECKING:
    from tests.simulate.life import Life


SECRET = "ghp_" + "a1B2c3D4e5F6" * 3  # a form that the redactor knows
STALL_S = (5.0, 2_000.0)


MODELS = ("scripted", SPARE)


def simulated_modelset(life: "Life") -> Modelset:
    """Two models of two providers, each with its guard; the second takes over from the first."""
    guards = {name: ProviderLimits(name, "key", CallSlots(), life.world.now_ms) for name in MODELS}
    return Modelset(
        {name: GuardedModel(SimulatedModel(life, name), guard) for name, guard in guards.items()},
        EmbeddedEmbeddings(life.run_blocking),
        look=lambda provider: guards[provider].standing,
    )


class SimulatedModel:
    """A `LanguageModel` that follows the text, unless it fails."""

    def __init__(self, life: "Life", name: str) -> None:
        self.name = self.provider = name
        self._life = life
        self._rng = life.world.chance.stream("model")
        self._scripted = Scripted(life.world.new_id)

    def most_output(self, request: ModelRequest) -> int:
        return request.sampling.max_output_tokens or 0

    async def stream(self, request: ModelRequest, on_delta: Callable[[Delta], None]) -> ModelTurn:
        life = self._life
        weather = life.world.weather
        if life.is_on:
            life.world.oracle.check_prompt(request)
        await life.reach(f"model {request.run_id[-4:]} {request.turn}.{request.attempt}")
        if weather.strikes("model stalls"):
            await trio.sleep(weather.draw_s(*STALL_S))
        if weather.strikes("model hangs"):
            await self._say(on_delta, self._rng.choice(("", "half an ans")))
            await trio.sleep_forever()
        if weather.strikes("model fails"):
            await self._say(on_delta, self._rng.choice(("", "", "half an ans")))
            failure_class = self._rng.choice(FAILURE_CLASSES)
            if failure_class == "context_overflow":
                life.world.oracle.transcripts.shorten(request.run_id)
            raise ModelFailure(failure_class, "the simulated provider fails")
        if weather.strikes("model crashes"):
            raise Planted("model adapter")
        if weather.strikes("model talks nonsense"):
            return self._nonsense()
        turn = await self._scripted.stream(request, on_delta)
        if self._rng.random() < 0.1:
            await self._say(on_delta, f" and the key is {SECRET}.")
            turn = msgspec.structs.replace(turn, text=f"{turn.text} {SECRET}.")
        await life.reach("model answers")
        return turn

    async def _say(self, on_delta: Callable[[Delta], None], text: str) -> None:
        """In pieces of any size."""
        while text:
            size = self._rng.randint(1, 9)
            on_delta(Delta("text", text[:size]))
            text = text[size:]
            await trio.lowlevel.checkpoint()

    def _nonsense(self) -> ModelTurn:
        """Return a faulty answer of a real kind: unknown tool, bad arguments, empty or cut text."""
        rng, new_id = self._rng, self._life.world.new_id
        pick = rng.randrange(6)
        calls: tuple[ProposedCall, ...] = ()
        if pick == 0:
            calls = (ProposedCall(call_id=new_id("call"), tool="no_such_tool", arguments={}),)
        elif pick == 1:
            calls = (ProposedCall(call_id=new_id("call"), tool="mark", arguments=["text", 1]),)
        elif pick == 2:
            calls = tuple(
                ProposedCall(call_id=new_id("call"), tool="peek", arguments='{"text": "x"')
                for _ in range(7)
            )
        text = rng.choice(("", " ", '<tool_call>{"name": "mark"}</tool_call>', "cut in the mid"))
        reasons: tuple[FinishReason, ...] = ("stop", "length", "content_filter")
        reason: FinishReason = "tool_calls" if calls else rng.choice(reasons)
        return ModelTurn(text=text, calls=calls, finish_reason=reason, usage=Usage())
