"""The wiretap: reads every message of the daemon, and checks that it was true when sent."""

import re
from typing import Any

import msgspec
import trio

from palyra.core.access import Caller
from palyra.core.journal.records import TERMINAL
from tests.simulate.marks import find_marks, owner_of
from tests.simulate.models import SECRET
from tests.simulate.network import Wire
from tests.simulate.oracle import Fail, Oracle
from tests.simulate.recollection import Place

Json = dict[str, Any]
_RUN = re.compile(rb"run_[0-9a-f-]{36}")
_DECODE = msgspec.json.Decoder().decode
PATIENCE_S = 120.0  # no request but one takes the daemon nearly so long
MAY_TAKE_LONG = {"run.wait"}


class _Ear:
    """The messages seen on one connection."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire
        self.caller: Caller | None = None
        self.token = ""
        self.asked: dict[Any, Json] = {}
        self.since: dict[Any, int] = {}  # commits at a request
        self.next_seq: dict[tuple[str, str], int] = {}  # (subscription, run)
        self.kinds: dict[str, frozenset[str]] = {}  # by subscription, where it wants only some
        self.caught_up: set[str] = set()


class Wiretap:
    """Every promise of a reply, every order of a stream."""

    def __init__(self, oracle: Oracle, callers: dict[str, Caller], fail: Fail) -> None:
        self._oracle = oracle
        self._callers = callers  # by token
        self._fail = fail
        self._ears: dict[int, _Ear] = {}
        self._since = 0  # commits when the request in hand came
        self._waits: dict[tuple[Wire, Any], float] = {}  # since when, the longest first

    def on_request(self, wire: Wire, data: bytes) -> None:
        """A client asks."""
        ear = self._ears.setdefault(wire.number, _Ear(wire))
        request = _DECODE(data)
        ear.asked[request["id"]] = request
        ear.since[request["id"]] = self._oracle.memory.now
        if request["method"] not in MAY_TAKE_LONG:
            self._waits[wire, request["id"]] = trio.current_time()
        self._check_patience()
        if request["method"] == "connect":
            ear.token = request["params"]["token"]

    def on_reply(self, wire: Wire, data: bytes) -> None:
        """Check a message from the daemon."""
        ear = self._ears.setdefault(wire.number, _Ear(wire))
        self._check_bytes(ear, data)
        message = _DECODE(data)
        for frame in message if isinstance(message, list) else [message]:
            if "method" in frame:
                self._notice(ear, frame["method"], frame["params"])
            else:
                self._reply(ear, frame)

    def _check_patience(self) -> None:
        """Check that a reachable client does not wait long for an answer."""
        while self._waits:
            (wire, request_id), since_s = next(iter(self._waits.items()))
            if wire.is_cut or wire.is_silent or not wire.life.is_on:
                del self._waits[wire, request_id]
                continue
            if since_s < trio.current_time() - PATIENCE_S:
                method = self._ears[wire.number].asked[request_id]["method"]
                self._fail("a request is answered", f"{wire.name}: {method}")
            return

    def _check_bytes(self, ear: _Ear, data: bytes) -> None:
        if SECRET.encode() in data:
            self._fail("no secret reaches the wire", data[:200].decode(errors="replace"))
        if ear.caller is None or ear.caller.principal_filter is None:
            return
        for mark in find_marks(data.decode()):
            if not ear.caller.sees(owner_of(mark)):
                self._fail("scope isolation", f"{ear.token[:8]} was told {mark}: {data[:300]!r}")
        for name in set(_RUN.findall(data)):
            run = self._oracle.runs.get(name.decode())
            if run is not None and not ear.caller.sees(run.accepted.principal):
                self._check_foreign(ear, name.decode(), data)

    def _check_foreign(self, ear: _Ear, run_id: str, data: bytes) -> None:
        """Check that a foreign id comes back only in the `not_found` error."""
        if b'"not_found"' not in data:
            text = f"{ear.token[:8]} was told of {run_id}: {data[:300].decode()}"
            self._fail("nothing crosses principals", text)

    # --- notifications

    def _notice(self, ear: _Ear, method: str, params: Json) -> None:
        match method:
            case "tape.event":
                self._event(ear, params)
            case "tape.committed":
                self._check_committed(params["run_id"], params["committed"])
            case "tape.reset":
                ear.next_seq[params["subscription"], params["run_id"]] = params["floor"]
            case "tape.caught_up":
                if params["subscription"] in ear.caught_up:
                    self._fail("caught_up comes once", params["subscription"])
                ear.caught_up.add(params["subscription"])
            case "approval.requested" | "approval.resolved":
                self._check_approval(params["approval_id"], method)
            case _:
                pass

    def _check_approval(self, approval_id: str, method: str) -> None:
        record = self._oracle.approvals.get(approval_id)
        if record is None:
            self._fail("a person is asked what is committed", approval_id)
        elif method == "approval.resolved" and record.state == "pending":
            self._fail("a resolution is told when committed", approval_id)

    def _event(self, ear: _Ear, params: Json) -> None:
        run_id, seq, committed = params["run_id"], params["seq"], params["committed"]
        self._check_committed(run_id, committed)
        place = params["subscription"], run_id
        expected = ear.next_seq.get(place, 0)
        kinds = ear.kinds.get(params["subscription"])
        if kinds is not None:
            expected = self._pass_over(kinds, run_id, expected, seq)
        if seq != expected or params["kind"] not in (kinds or {params["kind"]}):
            self._fail("a stream has no gap and no repeat", f"{run_id}: {seq}, not {expected}")
        ear.next_seq[place] = seq + 1
        if seq <= committed:
            row = self._oracle.tapes[run_id][seq]
            if (row.kind, row.at_ms, _DECODE(row.data)) != (
                params["kind"],
                params["at_ms"],
                params["data"],
            ):
                self._fail("what is called committed is the tape", f"{run_id} {seq}")

    def _pass_over(self, kinds: frozenset[str], run_id: str, expected: int, seq: int) -> int:
        """Return the next expected seq of a stream of these kinds; other rows are not sent."""
        between = self._oracle.tapes[run_id][expected:seq]
        missed = (expected + at for at, row in enumerate(between) if row.kind in kinds)
        return next(missed, max(expected, seq))

    def _check_committed(self, run_id: str, committed: int) -> None:
        if committed > self._oracle.head(run_id):
            self._fail("committed is durable", f"{run_id}: {committed}")

    # --- replies

    def _reply(self, ear: _Ear, frame: Json) -> None:
        request = ear.asked.pop(frame["id"], None)
        self._waits.pop((ear.wire, frame["id"]), None)
        if request is None:
            self._fail("a request is answered once", str(frame)[:200])
            return
        if "error" in frame:
            code = frame["error"].get("data", {}).get("code")
            if code in {"internal", "parse_error", "invalid_request"}:
                self._fail("no internal error reaches a client", str(frame["error"]))
            return
        self._since = ear.since.pop(frame["id"])
        check = getattr(self, "_on_" + request["method"].replace(".", "_"), None)
        if check is not None:
            check(ear, request["params"], frame["result"])

    def _on_connect(self, ear: _Ear, _params: Json, _result: Json) -> None:
        ear.caller = self._callers[ear.token]

    def _on_run_start(self, _ear: _Ear, _params: Json, result: Json) -> None:
        if self._oracle.head(result["run_id"]) < result["seq"]:
            self._fail("an accepted message is durable", result["run_id"])

    def _on_run_steer(self, _ear: _Ear, params: Json, result: Json) -> None:
        tape = self._oracle.tapes[params["run_id"]]
        if len(tape) <= result["seq"] or tape[result["seq"]].kind != "steer.received":
            self._fail("an accepted word is durable", params["run_id"])

    def _on_run_cancel(self, _ear: _Ear, params: Json, result: Json) -> None:
        run = self._oracle.runs[params["run_id"]]
        if not run.is_terminal or run.state != result["state"]:
            self._fail("a cancel is answered after the end", params["run_id"])

    def _on_run_wait(self, _ear: _Ear, params: Json, result: Json) -> None:
        state = self._oracle.runs[params["run_id"]].state
        if result["state"] in TERMINAL and state != result["state"]:
            self._fail("an end that is told is durable", params["run_id"])

    _on_run_get = _on_run_wait

    def _on_approval_resolve(self, _ear: _Ear, params: Json, result: Json) -> None:
        record = self._oracle.approvals[params["approval_id"]]
        states = {"allow": "allowed", "deny": "denied", "abort": "aborted"}
        if record.state != states[result["decision"]] or record.by != result["by"]:
            self._fail("an answer that is told is durable", params["approval_id"])

    def _on_task_submit(self, _ear: _Ear, params: Json, result: Json) -> None:
        if result["task_id"] not in self._oracle.backlog.tasks:
            self._fail("an acknowledged task is durable", f"{params} {result['task_id']}")

    _on_task_retry = _on_task_submit

    def _on_task_cancel(self, _ear: _Ear, params: Json, result: Json) -> None:
        durable = self._oracle.backlog.tasks[params["task_id"]]
        if not durable.is_final or durable.state != result["state"]:
            self._fail("a cancel is answered after the end", params["task_id"])

    def _on_schedule_add(self, _ear: _Ear, params: Json, result: Json) -> None:
        if result["schedule_id"] not in self._oracle.backlog.schedules:
            self._fail("a schedule that is told is durable", params["name"])

    def _on_session_archive(self, _ear: _Ear, params: Json, _result: Json) -> None:
        if self._oracle.sessions[params["session_id"]].archived_ms is None:
            self._fail("an archive is durable", params["session_id"])

    def _on_memory_search(self, ear: _Ear, params: Json, result: Json) -> None:
        assert ear.caller is not None
        whose = params.get("principal") or ear.caller.principal
        place = Place(whose, params.get("session_id"), params.get("channel"))
        for hit in result["hits"]:
            self._oracle.memory.check(hit["memory_id"], hit["text"], place, self._since)

    def _on_memory_list(self, ear: _Ear, params: Json, result: Json) -> None:
        assert ear.caller is not None
        whose = params.get("principal") or ear.caller.principal
        for item in result["items"]:
            if item["principal"] != whose:
                self._fail("scope isolation", f"{ear.token[:8]} was told {item}")
            self._oracle.memory.check_text(item["memory_id"], item["text"], self._since)
            self._oracle.memory.check_life(item["memory_id"], self._since)

    def _on_memory_get(self, _ear: _Ear, _params: Json, result: Json) -> None:
        self._oracle.memory.check_text(result["memory_id"], result["text"], self._since)

    def _on_memory_add(self, _ear: _Ear, _params: Json, result: Json) -> None:
        if not self._oracle.memory.was_stored(result["memory_id"]):
            self._fail("an item that is told is durable", result["memory_id"])

    def _on_memory_forget(self, _ear: _Ear, _params: Json, result: Json) -> None:
        for memory_id in result["memory_ids"]:
            if memory_id in self._oracle.memory.items:
                self._fail("a forgotten item is gone", memory_id)

    def _on_session_restore(self, _ear: _Ear, _params: Json, result: Json) -> None:
        if self._oracle.head(result["run_id"]) < 0:
            self._fail("a branch that is told is durable", result["run_id"])

    _on_run_fork = _on_session_restore

    def _on_tape_subscribe(self, ear: _Ear, params: Json, result: Json) -> None:
        if params.get("run_id"):
            ear.next_seq[result["subscription"], params["run_id"]] = result["from"]
        if params.get("kinds"):
            ear.kinds[result["subscription"]] = frozenset(params["kinds"])
