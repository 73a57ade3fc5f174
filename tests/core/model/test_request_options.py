"""Options of a request: their rank against the agent's own settings."""

from typing import Any

import msgspec

from palyra.core.context.assembly import brief_prefix
from palyra.core.context.history import past_run, select
from palyra.core.model.messages import Sampling, ToolMessage
from palyra.core.model.request_options import HEADING, ClientTool, RequestOptions, add_instructions
from palyra.core.policy.gate import Allow
from palyra.core.run.decide import accept
from palyra.core.run.environment import GatedCall
from palyra.core.run.inputs import Begin, CallEnded, Execute, TurnFinished
from palyra.core.run.state import Run
from palyra.core.tape import events as ev
from palyra.core.tool.spec import CLIENT, HANDED_OVER
from tests.core.run import run_world
from tests.core.run.run_world import PREFIX, World, turn

TOOL = ClientTool(name="weather", description="The weather.", parameters={"type": "object"})
BEGIN = Begin(instance_id="i")
WITH_TOOL = RequestOptions(tools=(TOOL,))


def heard(number: int, *tools: str, **words: Any) -> TurnFinished:
    return TurnFinished(turn=number, attempt=1, result=turn(*tools, **words))


def world(brief: RequestOptions = WITH_TOOL) -> World:
    """A run with a brief, begun; tools named `client` are the client's."""

    def evaluate(run: Run, call: Any) -> GatedCall:
        judged = run_world.evaluate(run, call)
        is_own = isinstance(judged.verdict, Allow) and call.tool.endswith(":mine")
        return msgspec.structs.replace(judged, executor=CLIENT) if is_own else judged

    made = World()
    made.env = msgspec.structs.replace(made.env, evaluate=evaluate)
    made.tape, made.states = [], []
    accepted = ev.RunAccepted(
        principal="ann", session_id="ses_1", agent="default", model="scripted", brief=brief
    )
    made.keep(accept("run_1", accepted, ev.MessageReceived(text="hello"), made.env))
    made.hear(BEGIN)
    return made


def test_a_blank_brief_changes_nothing() -> None:
    """Not even the object, which the provider's cache hangs on."""
    assert brief_prefix(PREFIX, None) is PREFIX
    assert brief_prefix(PREFIX, RequestOptions(sampling=Sampling(temperature=1.0))) is not None
    assert brief_prefix(PREFIX, RequestOptions()) is PREFIX


def test_instructions_come_after_the_agents_own() -> None:
    """The caller's instructions come after the agent's, under a heading that names the caller."""
    told = brief_prefix(PREFIX, RequestOptions(instructions="Speak French."))
    assert told.instructions.startswith(PREFIX.instructions)
    assert told.instructions.endswith(f"{HEADING}\nSpeak French.")
    assert told.hash != PREFIX.hash
    assert told.tokens > PREFIX.tokens


def test_a_tool_of_the_client_hides_one_of_the_daemon() -> None:
    """The model sees one tool of that name, and the gate knows it is not run here."""
    first = brief_prefix(PREFIX, RequestOptions(tools=(TOOL,)))
    again = brief_prefix(
        first, RequestOptions(tools=(msgspec.structs.replace(TOOL, description="Mine."),))
    )
    assert ["Mine."] == [tool["description"] for tool in again.tools]
    assert CLIENT == again.catalogue.tools["weather"].executor


def test_calls_of_the_client_end_the_run() -> None:
    """Proposed, decided, attested as handed over, and the answer names them; nothing started."""
    made = world()
    kinds = made.hear(heard(1, "allow:mine", text="let me see"))
    assert [
        "turn.completed",
        "tool.proposed",
        "tool.decided",
        "tool.attested",
        "message.completed",
        "run.done",
    ] == kinds
    (answer,) = made.drafts("message.completed")
    assert ("let me see", ["c1"]) == (answer.text, [call.call_id for call in answer.calls])
    assert HANDED_OVER == made.drafts("tool.attested")[0].attestation["status"]
    assert not [effect for effect in made.effects if isinstance(effect, Execute)]
    assert made.refold() == made.run


def test_calls_of_the_daemon_are_run_before_the_run_ends() -> None:
    """A turn may mix both; the client gets its own, once the others have ended."""
    made = world()
    assert "run.done" not in made.hear(heard(1, "allow:effect", "allow:mine"))
    ended = CallEnded(call_id="c1", status="succeeded", output="done", raw_sha256="")
    assert "run.done" in made.hear(ended)
    assert ["c2"] == [call.call_id for call in made.drafts("message.completed")[0].calls]
    assert made.refold() == made.run


ONE_CALL = RequestOptions(tools=(TOOL,), one_call=True)


def answers(made: World) -> list[str]:
    """The calls of the answer."""
    return [call.call_id for call in made.drafts("message.completed")[0].calls]


def test_a_caller_may_want_one_call_at_most() -> None:
    """The first one of its own; the tape has the others as rejected, each with its attestation."""
    made = world(ONE_CALL)
    made.hear(heard(1, "allow:mine", "allow:mine", "allow:mine"))
    assert (["c1"], "done") == (answers(made), made.run.state)
    rejected = made.drafts("tool.rejected")
    assert ["c2", "c3"] == [event.call_id for event in rejected]
    assert "one call" in rejected[0].reason
    statuses = [event.attestation["status"] for event in made.drafts("tool.attested")]
    assert ["rejected", "rejected", HANDED_OVER] == statuses
    assert made.refold() == made.run
    other = world(WITH_TOOL)
    other.hear(heard(1, "allow:mine", "allow:mine", "allow:mine"))
    assert ["c1", "c2", "c3"] == answers(other)


def test_only_calls_of_the_client_are_counted() -> None:
    """Those of the daemon run first, as ever; one that was refused is none."""
    made = world(ONE_CALL)
    made.hear(heard(1, "allow", "refuse:mine", "allow:mine", "allow", "allow:mine"))
    assert ["c1", "c4"] == [event.call_id for event in made.drafts("tool.started")]
    for call_id in ("c1", "c4"):
        made.hear(CallEnded(call_id=call_id, status="succeeded", output="x", raw_sha256=""))
    assert ["c3"] == answers(made)


def test_a_malformed_call_goes_back_to_the_model() -> None:
    """A malformed call of a client's tool is rejected, and the run continues."""
    made = world()
    made.hear(heard(1, "refuse:mine"))
    assert ("in_progress", 2) == (made.run.state, made.run.turn)


def test_a_limit_of_the_caller_is_kept() -> None:
    """A text cut at the caller's limit is the answer; without that limit it is continued."""
    made = world(RequestOptions(sampling=Sampling(max_output_tokens=5)))
    made.hear(heard(1, text="once upon", finish="length"))
    assert ("done", "once upon") == (made.run.state, made.drafts("message.completed")[0].text)
    assert ("partial", "max_tokens") == (made.run.reason, made.drafts("run.done")[0].cause)
    other = world(RequestOptions())
    other.hear(heard(1, text="once upon", finish="length"))
    assert ("in_progress", 2) == (other.run.state, other.run.turn)


def test_results_of_the_client_follow_in_a_later_message() -> None:
    """The run before shows its call without a result; the message brings it, and its findings."""
    made = world()
    made.hear(heard(1, "allow:mine"))
    assert not [m for m in past_run(made.run).messages if isinstance(m, ToolMessage)]
    result = ToolMessage("c1", "weather", "succeeded", "rain", "external_untrusted", ("order",))
    step = accept(
        "run_2", made.run.accepted, ev.MessageReceived(text="", results=(result,)), made.env
    )
    assert (result,) == step.run.transcript
    assert step.run.is_tainted


def test_a_given_conversation_replaces_the_earlier_runs() -> None:
    """Runs before one with its own conversation are left out, so no message is duplicated."""
    inherited = ev.ConversationInherited(run_id="", at_seq=-1, link="", messages=())
    made = World()
    given = accept(
        "run_2", made.run.accepted, ev.MessageReceived(text="go"), made.env, [inherited]
    ).run
    assert given.is_given
    assert not made.run.is_given
    old, new = past_run(made.run), past_run(given)
    assert ("run_2",) == select([new, old], 1_000).run_ids
    assert ("run_1", "run_2") == select(
        [msgspec.structs.replace(new, is_whole=False), old], 99
    ).run_ids


def test_the_schema_of_an_answer_follows_the_instructions() -> None:
    """The model is shown the answer's schema after its instructions."""
    schema = {"type": "object", "required": ["city"]}
    told = add_instructions("Be brief.", RequestOptions(answer_schema=schema))
    assert told.startswith("Be brief.\n\n")
    assert told.endswith('{"type":"object","required":["city"]}')
