"""Learning with a real daemon: a run teaches, the next run is shown it, a purge removes it."""

from collections.abc import Generator
from pathlib import Path

import pytest

from palyra.client import Client
from palyra.core.tape.events import ContextGathered
from palyra.errors import IllegalState, NotFound
from tests.cli.command import palyra
from tests.e2e.daemon_process import DaemonProcess, running
from tests.e2e.people import somebody
from tests.e2e.tapes import read_whole
from tests.e2e.test_purge import cleaned, leaks, person, talk
from tests.e2e.test_tasks import wait_ended
from tests.models.model_kit import chunk
from tests.models.provider import STREAM, provider, sse

pytestmark = pytest.mark.real
CONFIG = """\
[learning]
mode = "auto"
[models]
default = "p/m"
providers = [{{ name = "p", base_url = "{url}" }}]
"""
END = {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@pytest.fixture(scope="module")
def learner(tmp_path_factory: pytest.TempPathFactory) -> Generator[DaemonProcess]:
    """A daemon that learns in mode review."""
    base = tmp_path_factory.mktemp("learner")
    with running(base, PALYRA_LEARNING__MODE="review") as process:
        yield process


async def preferences(client: Client, run_id: str) -> list[str]:
    """The texts of the layer of preferences in the prompts of a run."""
    events = [event.event for event in await read_whole(client, run_id)]
    return [
        source.text
        for event in events
        if isinstance(event, ContextGathered) and event.layer == "preferences"
        for source in event.sources
    ]


async def test_an_accepted_preference_is_in_the_next_prompt(learner: DaemonProcess) -> None:
    """Before the acceptance and after the undo the same question is answered without it."""
    async with learner.connect(await person(learner, "ann")) as ann:
        run_id, _ = await talk(ann, "I always prefer answers in haiku form.")
        done = await ann.reflect(run_id)
        (one,) = done.candidate_ids
        ask = "How far is it from Ulm to Munich?"
        assert [] == await preferences(ann, (await talk(ann, ask))[0])
        await ann.accept_candidate(one)
        asked, _ = await talk(ann, ask)
        assert ["I always prefer answers in haiku form."] == await preferences(ann, asked)
        uses = (await ann.get_memory_used(asked)).uses
        (used,) = [each for each in uses if each.way == "standing"]
        segments = (await ann.explain_context(asked)).segments
        shown = {each.name: each.kept for each in segments if each.layer == "preferences"}
        assert shown[used.items[0].memory_id]
        await ann.undo_candidate(one)
        assert [] == await preferences(ann, (await talk(ann, ask))[0])
        found = await ann.get_candidate(one)
        assert ["proposed", "applied", "undone"] == [line.action for line in found.changes]
        assert run_id == found.evidence[0].run_id


async def test_a_run_is_read_after_its_end(learner: DaemonProcess) -> None:
    """The task in the background proposes what the run taught; no other principal's run is read."""
    async with learner.connect(await person(learner, "eve")) as eve:
        run_id, _ = await talk(eve, "Our staging database is called Persephone.")
        (read,) = await wait_ended(eve, 1)
        (found,) = (await eve.list_candidates()).candidates
    assert {"run_id": run_id, "candidates": [found.candidate_id], "applied": []} == read.result
    async with learner.connect(await person(learner, "mallory")) as mallory:
        await mallory.submit_task("reflection", {"run_id": run_id}, max_attempts=1)
        (task,) = await wait_ended(mallory, 1)
    assert "failed" == task.state
    assert f"no run '{run_id}'" in task.error


async def test_a_purged_session_leaves_no_candidate(learner: DaemonProcess) -> None:
    """Quotes, texts and items that were learned are gone from every file of the home."""
    canary = "quuxbeta"
    async with learner.connect(await person(learner, "bea")) as bea:
        run_id, session_id = await talk(bea, f"Our staging host is called {canary}.")
        (one,) = (await bea.reflect(run_id)).candidate_ids
        done = await bea.accept_candidate(one)
        assert done.memory_id is not None
        edited, _ = await talk(bea, f"My laptop is called {canary}.", session_key="other")
        (other,) = (await bea.reflect(edited)).candidate_ids
        await bea.edit_candidate(other, "My laptop is called Zed.")
        assert leaks(learner, canary)
        await bea.purge_session(session_id)
        with pytest.raises(NotFound):
            await bea.get_candidate(one)
        with pytest.raises(NotFound):
            await bea.get_memory(done.memory_id)
        assert "My laptop is called Zed." == (await bea.get_candidate(other)).text
        await bea.purge_memory("bea", sessions=True)
        assert [] == (await bea.list_candidates(states=())).candidates
        await cleaned(learner, canary)


async def test_the_command_reviews(learner: DaemonProcess) -> None:
    """`palyra learn` reflects, lists, shows, edits, accepts, undoes and rejects."""
    async with learner.connect() as operator:
        run_id, _ = await talk(operator, "Our build server is called Hephaestus.")

    async def command(*args: str) -> str:
        done = await palyra("learn", *args, home=learner.home)
        assert 0 == done.code, done.err
        return done.out

    candidate_id = next(
        word for word in (await command("reflect", run_id)).split() if word.startswith("can_")
    )
    assert "Hephaestus" in await command("list")
    assert f"{run_id}/" in await command("show", candidate_id)
    new = "Our build server is called Vulcan."
    assert "proposed" in await command("edit", candidate_id, "--text", new)
    assert "applied, mem_" in await command("accept", candidate_id)
    assert "undone" in await command("undo", candidate_id)
    shown = await command("show", candidate_id)
    assert "before: Our build server is called Hephaestus." in shown


async def test_learning_that_is_off_says_so(daemon: DaemonProcess) -> None:
    """The default configuration reads no run."""
    async with daemon.connect() as operator:
        run_id, _ = await talk(operator, "I always prefer tea.")
        with pytest.raises(IllegalState, match="learning is off"):
            await operator.reflect(run_id)


async def test_the_model_of_a_provider_reads_as_well(tmp_path: Path) -> None:
    """One more request in the background, metered, whose verbatim quote becomes a candidate."""
    said = "The kiln in the yard belongs to Odile."
    claims = '{"candidates": [{"kind": "fact", "quote": "%s"}, {"kind": "fact", "quote": "No."}]}'
    answers = ("fine", claims % said)
    async with provider(
        *([STREAM, sse(chunk(content=each), END, "[DONE]")] for each in answers)
    ) as served:
        home = tmp_path / "home"
        home.mkdir(mode=0o700)
        (home / "palyra.toml").write_text(CONFIG.format(url=served.url), encoding="utf-8")
        with running(tmp_path) as daemon:
            async with somebody(daemon, "client", "ann") as ann:
                run = await ann.start_run(said)
                await ann.wait_run(run.run_id)
                done = await ann.reflect(run.run_id)
                (one,) = done.candidate_ids
                found = await ann.get_candidate(one)
        assert (said, said, "proposed") == (found.text, found.evidence[0].quote, found.state)
        assert ({"model_no_evidence": 1}, ()) == (done.refused, done.applied)
        assert (2, said in str(served.bodies[1])) == (len(served.bodies), True)
