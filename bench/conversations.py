"""Size of the search index of conversations: bytes a run of one message, one call and one answer.

Prints one line of JSON: bytes of the tape, of the rows and words of texts and of outputs, and the
time of the background to index them.  Vectors are added for texts only: 400 bytes each with MiniLM.
"""

import argparse
import json
import random
import tempfile
import time
from pathlib import Path

from palyra.core.journal.changes import Change
from palyra.store.sqlite.journal import SqliteJournal
from tests.store.kit import row, run, session, sqlite_journal

VOCABULARY, WORDS, OUTPUT_WORDS, BATCH = 20_000, 20, 300, 100
TABLES = ("turns", "turn_log", "turns_by_session", "sqlite_autoindex_turns_1")
TEXT_INDEX = tuple(f"turn_fts_{part}" for part in ("data", "docsize", "idx"))


def fill(store: SqliteJournal, runs: int, *, with_outputs: bool) -> None:
    """Append runs of a message, a call with its output, and an answer."""
    rng = random.Random(7)
    words = [f"w{number:x}" for number in range(VOCABULARY)]
    weights = [1 / (rank + 10) for rank in range(VOCABULARY)]  # Zipf's law

    def text(count: int) -> str:
        return " ".join(rng.choices(words, weights, k=count))

    changes = []
    for number in range(runs):
        run_id, session_id = f"run_{number:08}", f"ses_{number // 10:08}"
        events = [
            ("message.received", {"text": text(WORDS)}),
            ("tool.proposed", {"call_id": "c", "tool": "read_file"}),
            (
                "tool.completed",
                {"call_id": "c", "output": text(OUTPUT_WORDS), "trust": "workspace"},
            ),
            ("message.completed", {"text": text(WORDS)}),
        ]
        if not with_outputs:
            del events[1:3]
        rows = tuple(
            row(run_id, seq, kind=kind, session_id=session_id, data=json.dumps(data).encode())
            for seq, (kind, data) in enumerate(events)
        )
        records = (run(run_id, session_id=session_id, state="done"), session(session_id))
        changes.append(Change(rows=rows, records=records))
    for start in range(0, runs, BATCH):
        store.commit(changes[start : start + BATCH])


def measure(runs: int, *, with_outputs: bool) -> dict[str, float]:
    """Return bytes a run and milliseconds a run."""
    with tempfile.TemporaryDirectory() as folder:
        store = sqlite_journal(Path(folder), synchronous="normal")
        store.open()
        fill(store, runs, with_outputs=with_outputs)
        began_s = time.thread_time()
        while True:
            step = store.turns().plan_turns()
            if step is None:
                break
            store.commit([Change(records=(step,))])
        took_s = time.thread_time() - began_s

        def size(names: tuple[str, ...]) -> float:
            statement = (
                "SELECT sum(pgsize) FROM dbstat WHERE name IN (SELECT value FROM json_each(?))"
            )
            found: int = store._read(lambda c: c.execute(statement, (json.dumps(names),)).get)  # noqa: SLF001 - measures the file
            return round(found / runs)

        result = {
            "tape_bytes": size(("tape",)),
            "rows_bytes": size(TABLES),
            "words_bytes": size(TEXT_INDEX),
            "index_thread_ms": round(took_s / runs * 1_000, 3),
        }
        store.close()
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2_000)
    runs = parser.parse_args().runs
    both = {
        name: measure(runs, with_outputs=with_outputs)
        for name, with_outputs in (("texts", False), ("texts_and_outputs", True))
    }
    print(json.dumps({"bench": "conversations", "runs": runs, **both}))


if __name__ == "__main__":
    main()
