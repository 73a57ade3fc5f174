"""skill.*: WASM skills.  Operators only."""

from typing import Annotated

import msgspec

from palyra.core.skill.manifest import Audit, InstallSkill, SkillRecord, tool_specs
from palyra.core.text.validation_errors import WORDS
from palyra.net.api.method import (
    Backend,
    Method,
    MethodCall,
    Mutation,
    Offset,
    at_once,
    check_no_secret,
)
from palyra.net.protocol.params import NoParams, Params
from palyra.net.protocol.results import (
    Skill,
    SkillAudit,
    SkillList,
    SkillToolView,
    TextSkillView,
    Uploaded,
)

_OFF = "text skills are not in use: context.text_skills is off"
MAX_CHUNK_BYTES = 262_144
SkillId = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
Sha256 = Annotated[
    str,
    msgspec.Meta(pattern=r"^[0-9a-f]{64}$", extra={WORDS: "64 hex digits in lower case"}),
]
Reason = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]


class SkillNamed(Params, frozen=True, kw_only=True):
    """One skill."""

    id: SkillId


class SkillUpload(Params, frozen=True, kw_only=True):
    """The next bytes of a package, in base64; the digest is that of the whole."""

    sha256: Sha256
    offset: Offset
    chunk: Annotated[bytes, msgspec.Meta(min_length=1, max_length=MAX_CHUNK_BYTES)]


class SkillInstall(Mutation, frozen=True, kw_only=True):
    """An uploaded package, and which of its declared capabilities are granted."""

    sha256: Sha256
    grant: Annotated[
        tuple[Annotated[str, msgspec.Meta(max_length=300)], ...], msgspec.Meta(max_length=32)
    ] = ()
    trust_key: Sha256 | None = (
        None  # the publisher's key in hex, from a channel other than the package
    )


class SkillQuarantine(Mutation, frozen=True, kw_only=True):
    """The skill to quarantine: its tools cannot be called."""

    id: SkillId
    reason: Reason


class SkillChange(Mutation, frozen=True, kw_only=True):
    """The skill to enable or remove."""

    id: SkillId


async def list_(call: MethodCall, _params: NoParams) -> SkillList:
    skills = call.backend.skills
    found = skills.list_all(call.caller)
    return SkillList(
        skills=[_show(record) for record in found],
        obstacle=skills.find_obstacle(),
        texts=await call.backend.run_blocking(_list_texts, call.backend),
    )


def _list_texts(backend: Backend) -> list[TextSkillView]:
    """Return the text skills of all workspaces, those of the home once.  Blocks."""
    backend.text_skills.notice()
    found = [(name, each) for name in backend.workspaces for each in backend.text_skills.look(name)]
    views = [
        TextSkillView(
            name=each.name,
            workspace="" if each.is_home else name,
            folder=each.folder,
            description=each.description,
            problem=each.problem or ("" if backend.text_skills.is_used else _OFF),
        )
        for name, each in found
    ]
    return list(dict.fromkeys(views))


def get(call: MethodCall, params: SkillNamed) -> Skill:
    return _show(call.backend.skills.get(call.caller, params.id))


def upload(call: MethodCall, params: SkillUpload) -> Uploaded:
    size = call.backend.skills.upload(call.caller, params.sha256, params.offset, params.chunk)
    return Uploaded(size=size)


async def install(call: MethodCall, params: SkillInstall) -> Skill:
    wanted = InstallSkill(sha256=params.sha256, granted=params.grant, trust_key=params.trust_key)

    async def effect() -> Skill:
        return _show(await call.backend.skills.install(call.caller, wanted))

    return await call.once(Skill, effect)


async def audit(call: MethodCall, params: SkillNamed) -> SkillAudit:
    found: Audit = await call.backend.skills.audit(call.caller, params.id)
    return SkillAudit(
        skill=_show(found.skill),
        problems=found.problems,
        imports=found.imports,
        functions=found.functions,
        module_bytes=found.module_bytes,
    )


async def quarantine(call: MethodCall, params: SkillQuarantine) -> Skill:
    check_no_secret(call, reason=params.reason)

    async def effect() -> Skill:
        skills = call.backend.skills
        return _show(await skills.quarantine(call.caller, params.id, params.reason))

    return await call.once(Skill, effect)


async def enable(call: MethodCall, params: SkillChange) -> Skill:
    async def effect() -> Skill:
        return _show(await call.backend.skills.enable(call.caller, params.id))

    return await call.once(Skill, effect)


async def remove(call: MethodCall, params: SkillChange) -> Skill:
    async def effect() -> Skill:
        return _show(await call.backend.skills.remove(call.caller, params.id))

    return await call.once(Skill, effect)


def _show(record: SkillRecord) -> Skill:
    manifest = record.manifest
    return Skill(
        id=manifest.id,
        version=manifest.version,
        publisher=manifest.publisher,
        public_key=record.public_key,
        package_sha256=record.package_sha256,
        description=manifest.description,
        state=record.state,
        tools=[
            SkillToolView(
                name=spec.name,
                description=spec.description,
                tool_class=spec.tool_class,
                risk=spec.risk,
            )
            for spec in tool_specs(record)
        ],
        capabilities=manifest.capabilities,
        granted=record.granted,
        installed_ms=record.installed_ms,
        changed_ms=record.changed_ms,
        changed_by=record.changed_by,
        reason=record.reason,
    )


METHODS = (
    Method("skill.list", NoParams, SkillList, "skills:read", list_),
    Method("skill.get", SkillNamed, Skill, "skills:read", at_once(get)),
    Method("skill.upload", SkillUpload, Uploaded, "skills:write", at_once(upload)),
    Method("skill.install", SkillInstall, Skill, "skills:write", install),
    Method("skill.audit", SkillNamed, SkillAudit, "skills:read", audit),
    Method("skill.quarantine", SkillQuarantine, Skill, "skills:write", quarantine),
    Method("skill.enable", SkillChange, Skill, "skills:write", enable),
    Method("skill.remove", SkillChange, Skill, "skills:write", remove),
)
