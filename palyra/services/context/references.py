"""Context sources: resolve references, find project files, recall memories.

Owns: nothing.  Talks to: the toolbox, the journal, the memory (ports).
Never: reads a file or a page by itself.  A reference to a file, a folder or a page is a call of the
tool that reads it: the same rules, the same confinement, the same egress.  It needs no approval where
the person who typed it may give approvals; for all others a rule that asks is a refusal.
Each source fails alone: its error is part of the result.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import chain, product
from types import MappingProxyType
from typing import Any

import msgspec

from palyra.core.access import SCOPES, Caller
from palyra.core.audience import Audience
from palyra.core.context.assembly import Prefix
from palyra.core.context.history import PastRun, past_run
from palyra.core.context.references import (
    FOLDER_FILES,
    MAX_CHARS,
    MEMORY_ITEMS,
    PROJECT_CHARS,
    PROJECT_FILES,
    PROJECT_TOTAL_CHARS,
    RECALLED_CHARS,
    RECALLED_ITEMS,
    cut_all,
    cut_text,
    nearest_first,
    render_talk,
)
from palyra.core.context.rendering import trust_of
from palyra.core.journal.changes import RunFilter
from palyra.core.journal.records import DEFAULT_WORKSPACE, SessionRecord
from palyra.core.memory.documents import DOCUMENTS
from palyra.core.model.messages import ProposedCall
from palyra.core.model.sources import ContextSource, MemorySources, RecallScope
from palyra.core.policy.gate import Allow, NeedsApproval
from palyra.core.ports import (
    Journal,
    JournalStore,
    NowMs,
    PromptRecall,
    ReadDiff,
    RunBlocking,
    TextSkillFinder,
    ToolRunner,
)
from palyra.core.run.state import Run, has_findings
from palyra.core.skill.text_skill import NOTE, TOOL, render_list
from palyra.core.text.references import Reference, ReferenceKind, parse_prompt
from palyra.core.tool.spec import ToolCall, ToolFailure, ToolOutput
from palyra.core.trust.injection_scan import find_injections
from palyra.core.trust.labels import lowest
from palyra.errors import PalyraError, Unreadable
from palyra.services.context.history import ENDED
from palyra.services.policy.gate import Gate
from palyra.services.tape.run_loader import read_run

INHERITED_FINDING = "tainted_run"  # of a text from a run that read injected instructions
NEEDS_APPROVAL = "the rules want an approval, which a reference cannot request: {reason}"
MAX_SESSION_RUNS = 20

Judge = Callable[[str, Mapping[str, Any]], str]  # tool and arguments to a refusal, or ""
Resolver = Callable[["Asker", Reference, ContextSource], Awaitable[ContextSource]]


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """On whose behalf sources are gathered, and what the rules allow them."""

    scope: RecallScope
    refusal: Judge
    workspace: str = DEFAULT_WORKSPACE
    has_skills: bool = False  # it has the tool that reads text skills


class ContextSources:
    """Reader of everything that a prompt takes from outside its run."""

    def __init__(  # noqa: PLR0913 - all by name
        self,
        *,
        journal: Journal,
        toolbox: ToolRunner,
        gate: Gate,
        run_blocking: RunBlocking,
        now_ms: NowMs,
        has_names: Mapping[str, Callable[[Sequence[str]], bool]] = MappingProxyType({}),
        project_files: Sequence[Sequence[str]] = PROJECT_FILES,
        read_diffs: Mapping[str, ReadDiff] = MappingProxyType({}),
        recall: PromptRecall | None = None,
        skills: TextSkillFinder | None = None,
    ) -> None:
        """`has_names` tells without waiting if a workspace's top has one of these names.

        It and `read_diffs` have an entry for each workspace.
        """
        self._journal = journal
        self._toolbox = toolbox
        self._gate = gate
        self._run_blocking = run_blocking
        self._now_ms = now_ms
        self._has_names = has_names
        self._project_files = project_files
        self._project_names = [*chain(*project_files)]
        self._read_diffs = read_diffs
        self._recall = recall
        self._skills = skills
        self._resolvers: dict[ReferenceKind, Resolver] = {
            "file": self._file,
            "folder": self._folder,
            "diff": self._diff,
            "staged": self._diff,
            "url": self._url,
            "memory": self._memory,
            "run": self._run,
            "session": self._session,
            "mcp": self._resource,
            "prompt": self._prompt,
        }

    # --- who asks

    def for_run(self, run: Run, prefix: Prefix) -> Asker:
        """Return the run as an asker."""
        accepted = run.accepted
        whole = self._whole(prefix)
        is_typed = accepted.origin == "interactive" and accepted.channel is None
        may_approve = is_typed and "approvals:write" in _scopes(accepted.role)

        def refusal(tool: str, arguments: Mapping[str, Any]) -> str:
            proposed = ProposedCall(call_id="reference", tool=tool, arguments=dict(arguments))
            validated = self._gate.validate(proposed, whole)
            gated = self._gate.evaluate(run, proposed, validated, whole)
            match gated.verdict:
                case Allow():
                    return ""
                case NeedsApproval(reason=reason):
                    return "" if may_approve else NEEDS_APPROVAL.format(reason=reason)
                case verdict:
                    return verdict.reason

        scope = RecallScope(
            audience=accepted.audience(prefix.agent.memory_scope), run_id=run.run_id
        )
        return Asker(
            scope=scope,
            refusal=refusal,
            workspace=accepted.workspace,
            has_skills=TOOL in prefix.catalogue.tools,
        )

    def for_caller(
        self,
        caller: Caller,
        prefix: Prefix,
        session: SessionRecord | None = None,
        workspace: str = DEFAULT_WORKSPACE,
    ) -> Asker:
        """Return a client as an asker, as a run that it would start."""
        whole = self._whole(prefix)
        may_approve = caller.may("approvals:write")

        def refusal(tool: str, arguments: Mapping[str, Any]) -> str:
            proposed = ProposedCall(call_id="reference", tool=tool, arguments=dict(arguments))
            explained, _ = self._gate.explain(
                caller,
                proposed,
                whole,
                session=session,
                workspace=workspace,
                now_ms=self._now_ms(),
            )
            if explained.answer == "allow" or (explained.answer == "ask" and may_approve):
                return ""
            if explained.answer == "ask":
                return NEEDS_APPROVAL.format(reason=explained.reason)
            return explained.reason

        scope = RecallScope(
            audience=Audience(
                principal=caller.principal,
                session_id="" if session is None else session.session_id,
                channel=None if session is None else session.channel,
                memory_scope=prefix.agent.memory_scope,
                is_confined=session is not None and session.channel is not None,
            )
        )
        return Asker(
            scope=scope,
            refusal=refusal,
            workspace=workspace,
            has_skills=TOOL in prefix.catalogue.tools,
        )

    def _whole(self, prefix: Prefix) -> Prefix:
        """Return the prefix with every tool: references are not limited to those of the agent."""
        return msgspec.structs.replace(prefix, catalogue=self._toolbox.catalogue())

    # --- what there is

    def has_sources(self, run: Run) -> bool:
        """True if a run that begins has more to gather than its references.  Never waits."""
        return (
            self.may_recall(run.accepted.principal)
            or run.has_references
            or self.has_project_files(run.accepted.workspace)
        )

    async def prepare(self, principal: str, workspace: str) -> None:
        """Find out if the principal has memories and the workspace skills, before a run begins.

        Cancellation: nothing happened.
        """
        if self._recall is not None:
            await self._recall.prepare(principal)
        if self._skills is not None and workspace in self._skills.present:
            await self._run_blocking(self._skills.look, workspace)
            self._skills.offer_tool(workspace)

    def has_project_files(self, workspace: str) -> bool:
        """True if the workspace may have project files or text skills.  Never waits."""
        has_names = self._has_names.get(workspace)
        if has_names is not None and has_names(self._project_names):
            return True
        return self._skills is not None and workspace in self._skills.present

    def may_recall(self, principal: str) -> bool:
        """True if the principal may have memories.  Never waits."""
        return self._recall is not None and self._recall.has_items(principal)

    # --- project files

    async def find_project_files(
        self, asker: Asker, folders: Sequence[str]
    ) -> tuple[ContextSource, ...]:
        """Return the project files nearest to these folders; of each row of names one for a folder.

        Cancellation: nothing happened.
        """
        looked: dict[str, ContextSource | None] = {}
        for names, folder in product(self._project_files, folders or ("",)):
            for place, name in product(nearest_first(folder), names):
                path = f"{place}/{name}" if place else name
                if path not in looked:
                    looked[path] = await self._find_project_file(asker, path)
                if looked[path] is not None:
                    break
        found = [source for source in looked.values() if source is not None]
        return (*cut_all(found, PROJECT_TOTAL_CHARS), *await self._list_skills(asker))

    async def _list_skills(self, asker: Asker) -> list[ContextSource]:
        """Return the list of text skills as one source; [] without any."""
        if self._skills is None or not asker.has_skills:
            return []
        text = render_list(self._skills.listed(asker.workspace))
        if not text:
            return []
        return [
            await self._scan(ContextSource(name="text skills", kind="skills", text=text, note=NOTE))
        ]

    async def _find_project_file(self, asker: Asker, path: str) -> ContextSource | None:
        """Return the file, or None if it is missing or cannot be read."""
        try:
            output = await self._call(asker, "read_file", {"path": path})
        except PalyraError:
            return None
        source = ContextSource(name=path, kind="project_file", text=output.text)
        return await self._scan(cut_text(source, PROJECT_CHARS))

    # --- memories

    async def find_standing(self, asker: Asker) -> MemorySources:
        """Return the memories of every prompt of the asker.

        Raises the errors of the memory.  Cancellation: nothing happened.
        """
        if self._recall is None:
            return MemorySources()
        return await self._recall.find_standing(asker.scope)

    async def recall(self, asker: Asker, question: str) -> MemorySources:
        """Return memories for a message, without the standing ones.

        Raises the errors of the memory.  Cancellation: nothing happened.
        """
        if self._recall is None:
            return MemorySources()
        found = await self._recall.recall(question, asker.scope)
        return MemorySources(tuple(cut_all(found[:RECALLED_ITEMS], RECALLED_CHARS)))

    # --- references

    async def resolve(self, asker: Asker, reference: Reference) -> ContextSource:
        """Return the text of a reference, or its error.  Cancellation: nothing happened."""
        blank = ContextSource(name=reference.name, kind=reference.kind)
        try:
            source = await self._resolvers[reference.kind](asker, reference, blank)
        except PalyraError as error:
            return msgspec.structs.replace(blank, error=error.message)
        return await self._scan(cut_text(source, MAX_CHARS[reference.kind]))

    async def _call(
        self,
        asker: Asker,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        shows_failure: bool = True,
    ) -> ToolOutput:
        """Call a reading tool.  Raises ToolFailure if the rules refuse the call or it fails.

        An error of a source is not fenced, so `shows_failure` is for words of the tool itself.
        """
        spec = self._toolbox.catalogue().tools.get(tool)
        if spec is None:
            raise ToolFailure(f"{tool} is not available")
        refusal = asker.refusal(tool, arguments)
        if refusal:
            raise ToolFailure(refusal)
        call = ToolCall(
            call_id="reference",
            run_id=asker.scope.run_id,
            session_id=asker.scope.audience.session_id,
            principal=asker.scope.audience.principal,
            tool=tool,
            tool_version=spec.version,
            arguments=arguments,
            audience=asker.scope.audience,
            workspace=asker.workspace,
        )
        output = await self._toolbox.execute(call, lambda _piece: None)
        if output.is_failure:
            own = output.text.partition("\n")[0] if shows_failure else ""
            raise ToolFailure(own or f"{tool} answered with an error")
        if output.pictures and not output.text:
            raise ToolFailure("a picture is no text: attach it, or ask the model to read the file")
        return output

    async def _scan(self, source: ContextSource) -> ContextSource:
        """Add the findings of the injection scanner."""
        if not source.text or source.trust == "trusted_local":
            return source
        found = await self._run_blocking(find_injections, source.text)
        findings = (*source.findings, *map(str, found))
        return msgspec.structs.replace(source, findings=findings)

    async def _file(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        first, last = reference.first_line, reference.last_line
        arguments: dict[str, Any] = {"path": reference.target}
        if first is not None and last is not None:
            if not 0 < first <= last:
                raise ToolFailure(f"lines {first} to {last} are no range")
            arguments |= {"offset": first, "limit": min(last - first + 1, MAX_LINES)}
        output = await self._call(asker, "read_file", arguments)
        return msgspec.structs.replace(blank, text=output.text, trust=output.trust)

    async def _folder(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        arguments = {"pattern": "**", "path": reference.target}
        listed = (await self._call(asker, "glob", arguments)).text.splitlines()
        paths = [line for line in listed if not line.startswith("[")]
        if not paths:
            raise ToolFailure("the folder has no files")
        pieces: list[str] = []
        shown = paths[:FOLDER_FILES]
        room = MAX_CHARS["folder"] // len(shown)
        for path in shown:
            try:
                text = (await self._call(asker, "read_file", {"path": path})).text
            except PalyraError as error:
                text = f"[not shown: {error.message}]"
            piece = f"--- {path}\n{text}" + "\n" * (not text.endswith("\n"))
            left_out = f"[… cut after {room} characters]\n"
            pieces.append(piece if len(piece) <= room else piece[: room - len(left_out)] + left_out)
        note = f"{len(shown)} of {len(paths)} files, sorted by path"
        return msgspec.structs.replace(blank, text="".join(pieces), note=note)

    async def _url(self, asker: Asker, reference: Reference, blank: ContextSource) -> ContextSource:
        output = await self._call(asker, "http_fetch", {"url": reference.target})
        return msgspec.structs.replace(blank, text=output.text, trust=output.trust)

    async def _resource(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        server, _, uri = reference.target.partition("/")
        if not server or not uri:
            raise ToolFailure("a resource of an MCP server is @mcp:SERVER/URI")
        return await self._ask_server(asker, server, "read_resource", {"uri": uri}, blank)

    async def _prompt(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        server, name, arguments = parse_prompt(reference.target)
        if not server or not name:
            raise ToolFailure("a prompt of an MCP server is @prompt:SERVER/NAME?ARGUMENT=VALUE")
        wanted = {"name": name, "arguments": arguments}
        return await self._ask_server(asker, server, "get_prompt", wanted, blank)

    async def _ask_server(
        self,
        asker: Asker,
        server: str,
        tool: str,
        arguments: Mapping[str, Any],
        blank: ContextSource,
    ) -> ContextSource:
        """Call a tool of an MCP server.  The text of an error is the server's, so it is not shown."""
        name = f"mcp:{server}.{tool}"
        if name not in self._toolbox.catalogue().tools:
            raise ToolFailure(
                "no MCP server of that name is connected and offers that (`palyra mcp list`)"
            )
        output = await self._call(asker, name, arguments, shows_failure=False)
        return msgspec.structs.replace(blank, text=output.text, trust=output.trust)

    async def _diff(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        read_diff = self._read_diffs.get(asker.workspace)
        if read_diff is None:
            raise ToolFailure("there is no sandbox that git could run in")
        refusal = asker.refusal("list_dir", {"path": reference.target})
        if refusal:
            raise ToolFailure(refusal)
        sections = await read_diff(reference.target, is_staged=reference.kind == "staged")
        shown, room = list[str](), MAX_CHARS["diff"]
        for section in sections:
            if asker.scope.audience.is_confined and section.path in DOCUMENTS:
                continue  # lines of managed blocks show memory
            if room > 0 and not asker.refusal("read_file", {"path": section.path}):
                shown.append(section.text)
                room -= len(section.text)
        if not shown:
            raise ToolFailure("there are no changes")
        is_part = len(shown) < len(sections)
        note = f"changes of {len(shown)} of {len(sections)} files" if is_part else ""
        return msgspec.structs.replace(blank, text="".join(shown), note=note)

    async def _memory(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        if self._recall is None:
            raise ToolFailure("this daemon has no memory")
        scope = msgspec.structs.replace(asker.scope, limit=MEMORY_ITEMS, is_explicit=True)
        found = (await self._recall.recall(reference.target, scope))[:MEMORY_ITEMS]
        if not found:
            raise ToolFailure("no memory answers this")
        return msgspec.structs.replace(
            blank,
            text="\n".join(f"- {each.text}" for each in found),
            note=", ".join(each.name for each in found),
            trust=lowest(each.trust for each in found),
            findings=tuple(finding for each in found for finding in each.findings),
        )

    async def _run(self, asker: Asker, reference: Reference, blank: ContextSource) -> ContextSource:
        name, audience = reference.target, asker.scope.audience
        past = await self._journal.read(lambda store: _find_run(store, name, audience))
        return _talk(blank, [past])

    async def _session(
        self, asker: Asker, reference: Reference, blank: ContextSource
    ) -> ContextSource:
        key, audience = reference.target, asker.scope.audience
        return _talk(
            blank, await self._journal.read(lambda store: _find_session(store, key, audience))
        )


MAX_LINES = 2_000  # of one call of `read_file`


def _scopes(role: str) -> frozenset[str]:
    """Return the scopes of a recorded role; the operator's include all."""
    known: Mapping[str, frozenset[str]] = {str(name): scopes for name, scopes in SCOPES.items()}
    scopes = known.get(role, frozenset())
    return scopes | {"approvals:write"} if "*" in scopes else scopes


def _find_run(store: JournalStore, run_id: str, audience: Audience) -> PastRun:
    """Return an ended run of the audience.  Raises ToolFailure in the same words for all others."""
    record = store.find_run(run_id)
    if record is None or not audience.sees(record):
        raise ToolFailure("there is no such run of yours")
    if not record.is_terminal:
        raise ToolFailure("the run has not ended yet")
    return _load(store, run_id)


def _find_session(store: JournalStore, key: str, audience: Audience) -> list[PastRun]:
    """Return the newest ended runs of a session of the audience, oldest first."""
    session = store.find_session_by_key(audience.principal, key) or store.find_session(key)
    if session is None or not audience.sees(session):
        raise ToolFailure("there is no such session of yours")
    wanted = RunFilter(session_id=session.session_id, states=ENDED, limit=MAX_SESSION_RUNS)
    loaded = (_load(store, record.run_id) for record in reversed(store.list_runs(wanted)))
    found = [past for past in loaded if past.epoch == session.epoch]  # since the last reset
    if not found:
        raise ToolFailure("no run of the session has ended yet")
    return found


def _load(store: JournalStore, run_id: str) -> PastRun:
    try:
        found = read_run(store, run_id)
    except Unreadable as gone:
        raise ToolFailure(f"{run_id}: {gone.message}") from None
    if found is None:
        raise ToolFailure(f"the tape of {run_id} cannot be read")
    return past_run(found.run)


def _talk(blank: ContextSource, runs: Sequence[PastRun]) -> ContextSource:
    """Return the newest part of the conversation; what it quotes keeps the lowest label."""
    messages = [message for past in runs for message in past.messages]
    text, limit = render_talk(messages), MAX_CHARS["session"]
    is_tainted = any(past.is_tainted for past in runs) or has_findings(messages)
    return msgspec.structs.replace(
        blank,
        text=text[-limit:],
        note=f"the last {limit} of {len(text)} characters" if len(text) > limit else "",
        trust=lowest(["workspace", *(past.trust for past in runs), *map(trust_of, messages)]),
        findings=(INHERITED_FINDING,) if is_tainted else (),
    )
