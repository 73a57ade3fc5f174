"""Recall for prompts: principals without items cost nothing, uses are on record."""

import statistics
from pathlib import Path
from typing import Any

import msgspec
import pytest

from palyra.core.audience import Audience
from palyra.core.context.sources import render_gathered
from palyra.core.memory.packing import MAX_STATEMENTS, PACK_TOKENS
from palyra.core.model.sources import RecallScope
from palyra.core.tape.events import ContextGathered
from palyra.core.text.tokens import estimate_tokens
from palyra.errors import Unavailable
from palyra.models.memory_embedders import HashedEmbedder
from palyra.services.memory.embedders import LocalEmbedder
from palyra.services.memory.recall import MemoryRecall
from tests.core.memory.facts_and_prompts import ASKED, UNRELATED
from tests.services.memory_kit import ANN, BOB, MemoryKit, run_inline

pytestmark = pytest.mark.real
SCOPE = RecallScope(
    audience=Audience(
        principal="ann", session_id="ses_1", memory_scope="principal", is_confined=False
    ),
    run_id="run_1",
)


class Kit(MemoryKit):
    """A memory whose reads are counted."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.recall = MemoryRecall(self.search)
        self.reads = 0
        self.journal.after_read = self.count_read

    def count_read(self) -> None:
        self.reads += 1


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


async def test_a_principal_without_items_is_looked_at_once(kit: Kit) -> None:
    """Its runs do not read the journal again until something is stored, by anyone's hand."""
    assert kit.recall.has_items("ann")  # nothing is known yet
    for _ in range(3):
        await kit.recall.prepare("ann")
        assert not kit.recall.has_items("ann")
        assert () == await kit.recall.recall("cmake", SCOPE)
    assert 1 == kit.reads
    await kit.add("cmake builds the project")
    assert kit.recall.has_items("ann")
    (found,) = await kit.recall.recall("cmake", SCOPE)
    assert "cmake builds the project" == found.text
    (use,) = kit.store.list_memory_uses(run_id="run_1")
    assert ("auto", "cmake", found.name) == (use.way, use.question, use.items[0].memory_id)


async def test_a_memory_that_was_emptied_costs_nothing_again(kit: Kit) -> None:
    """After the last item was forgotten one more recall finds that out."""
    own = await kit.add("cmake builds the project")
    await kit.recall.prepare("ann")
    await kit.memories.forget(ANN, [own])
    assert kit.recall.has_items("ann")
    assert () == await kit.recall.recall("cmake", SCOPE)
    assert not kit.recall.has_items("ann")


async def test_a_search_that_fails_is_no_empty_memory(kit: Kit) -> None:
    """The run learns of it, and its tape says why it went on without memory."""
    await kit.add("cmake builds the project")
    kit.store.close()
    with pytest.raises(Unavailable, match="the memory failed: journal: it is closed"):
        await kit.recall.recall("cmake", SCOPE)


async def test_no_hit_does_not_make_a_memory_empty(kit: Kit) -> None:
    """A question about something else leaves the items to the next one."""
    await kit.add("cmake builds the project")
    assert () == await kit.recall.recall("xyzzy", SCOPE)
    assert 1 == len(await kit.recall.recall("cmake", SCOPE))


async def test_a_failing_journal_leaves_it_open(kit: Kit) -> None:
    """The look is repeated with the next run."""

    def fail() -> Any:
        raise Unavailable("disk")

    kit.journal.after_read = fail
    await kit.recall.prepare("ann")
    assert kit.recall.has_items("ann")
    kit.journal.after_read = kit.count_read
    await kit.recall.prepare("ann")
    assert not kit.recall.has_items("ann")


async def test_a_prompt_shows_what_the_budget_of_a_recall_allows(kit: Kit) -> None:
    """The block in the prompt is hardly larger than the pack: items do not cost a fence each."""
    for number in range(60):
        text = f"the harbour of town {number} has {number} ships and a lighthouse " * 2
        await kit.add(text, kind="turn", session_id="ses_1", at_ms=number, author="Ann")
    sources = await kit.recall.recall("which town has a harbour with ships?", SCOPE)
    assert len(sources) > 20
    event = ContextGathered(layer="recalled", sources=tuple(sources))
    message = render_gathered(event, "place", b"key")
    assert message is not None
    assert PACK_TOKENS / 2 < estimate_tokens(message.text) < PACK_TOKENS + 100


async def test_a_prompt_gets_the_facts_it_is_about(tmp_path: Path) -> None:
    """Of 61 facts a prompt about one gets this and hardly another; one about none gets nothing."""
    kit = MemoryKit(tmp_path, is_indexed=True)
    kit.embedder = LocalEmbedder(HashedEmbedder(), run_inline)
    for each in ASKED:
        await kit.add(each.fact, kind="fact")
    await kit.keep_up()
    recall = MemoryRecall(kit.search)
    counts, right = [], 0
    for each in ASKED:
        found = [source.text for source in await recall.recall(each.prompt, SCOPE)]
        counts.append(len(found))
        right += each.fact in found
    assert right >= len(ASKED) - 2
    assert statistics.median(counts) == 1
    assert max(counts) <= MAX_STATEMENTS
    foreign = [bool(await recall.recall(prompt, SCOPE)) for prompt in UNRELATED]
    assert sum(foreign) <= len(UNRELATED) // 8


@pytest.mark.parametrize("said", ["ok", "thanks, that's perfect", "danke, mach weiter"])
async def test_small_talk_recalls_nothing(kit: Kit, said: str) -> None:
    """A message without a subject gets no memory, even one with its words; a reference does."""
    await kit.add(f"{said}: so ends every mail of the ok perfect thanks danke weiter club")
    assert () == await kit.recall.recall(said, SCOPE)
    explicit = msgspec.structs.replace(SCOPE, is_explicit=True)
    assert 1 == len(await kit.recall.recall(said, explicit))


PROMPTS = """\
How far is it from Ulm to Munich?
write me a haiku about the sea
the build is red again, have a look please
Wie viele Einwohner hat Graz?
kannst du die Rechnung von gestern noch mal prüfen
which of the two invoices is older
explain monads to a ten year old
rename the variable in line 12
What's for dinner with leeks and potatoes?
bitte fass das Protokoll zusammen
add a test for the empty list
who wrote Effi Briest
git says detached head, what now
Draft a letter to the landlord about the heating
übersetze den ersten Absatz ins Englische
how do I get coffee out of a white shirt
is 91 a prime
plan three days in Lisbon with two kids
mach aus der Liste eine Tabelle
my cat sneezes a lot, should I worry
convert 240 pounds
the printer on the second floor is jammed
Erkläre mir den Unterschied zwischen Miete und Pacht
give me the regex for a postcode
what did we decide about the parser
thx
run the migration on the copy first
warum ist der Himmel blau
compare these two contracts
How long do I boil an ostrich egg?
make the hero jump higher in the second level
Formuliere eine Absage an den Bewerber
the ward needs a new roster for July
sum up column C
wie lange darf Milch offen stehen
find the memory leak
which chord fits after a minor
Does the theorem hold for n = 0?
schreib mir drei Fragen für die Klassenarbeit
let's go on where we stopped
look up the word "petrichor"
when do swallows come back
der Zug um 8 fällt aus, was jetzt
what does exit code 137 mean
sort my bookmarks
calculate the beam for a load of 4 kN
Ist der Satz so richtig?
good morning""".splitlines()
LIKES = (
    "Always answer me in metric units.",
    "I prefer pnpm over npm for everything.",
    "Bitte duze mich.",
)


async def test_preferences_are_in_every_prompt_of_their_principal(kit: Kit) -> None:
    """No word of the messages decides, another principal's never show, and facts are recalled."""
    for text in LIKES:
        await kit.add(text, kind="preference")
    await kit.add("The ostrich farm is called Zephyr.", kind="fact")
    await kit.add("I hate metric units.", BOB, kind="preference")
    assert 48 == len(PROMPTS)
    for prompt in PROMPTS:
        shown, left_out = await kit.recall.find_standing(SCOPE)
        assert (LIKES, 0) == (tuple(each.text for each in shown), left_out)
        recalled = await kit.recall.recall(prompt, SCOPE)
        assert not {each.text for each in recalled} & {*LIKES, "I hate metric units."}, prompt
    (egg,) = await kit.recall.recall("How long do I boil an ostrich egg?", SCOPE)
    assert "fact" == egg.kind


async def test_standing_items_are_read_after_a_change_only(kit: Kit) -> None:
    """Runs between two changes cost no read and get the same prefix; forgotten items are gone."""
    own = await kit.add(LIKES[0], kind="preference")
    first = await kit.recall.find_standing(SCOPE)
    reads = kit.reads
    assert first == await kit.recall.find_standing(SCOPE)
    assert reads == kit.reads
    await kit.memories.forget(ANN, [own])
    assert () == (await kit.recall.find_standing(SCOPE)).sources


async def test_the_most_used_preferences_stay_within_the_budget(kit: Kit) -> None:
    """Finds of a recall count as uses; being shown does not."""
    old = await kit.add("Tables of prices have their currency in the header.", kind="preference")
    for number in range(120):
        await kit.add(f"Preference {number} of this kind is wordy in every way.", kind="preference")
    assert old not in {each.name for each in (await kit.recall.find_standing(SCOPE)).sources}
    await kit.recall.recall("prices currency header", SCOPE)
    await kit.add("One more change renews the order.", kind="note")
    found = await kit.recall.find_standing(SCOPE)
    assert old in {each.name for each in found.sources}
    assert found.left_out > 0
    ways = {use.way for use in kit.store.list_memory_uses(run_id="run_1")}
    assert {"auto", "standing"} == ways
