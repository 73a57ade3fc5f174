"""Fake skills for connections: one skill, and the recorded requests."""

from typing import Any

import trio

from palyra.core.access import Caller
from palyra.core.skill.manifest import (
    MODULE,
    Audit,
    FileFact,
    InstallSkill,
    Manifest,
    SkillRecord,
    SkillTool,
)
from palyra.errors import NotFound

COUNTER = SkillRecord(
    manifest=Manifest(
        format=1,
        id="counter",
        version="1.2.0",
        publisher="example.org",
        description="Counts words.",
        capabilities=("clock", "fetch:example.org"),
        tools=(
            SkillTool(
                name="count", description="Count.", parameters={"type": "object"}, risk="low"
            ),
        ),
        files={MODULE: FileFact(sha256="c" * 64, size=9)},
    ),
    public_key="a" * 64,
    package_sha256="b" * 64,
    granted=("clock",),
    state="enabled",
    installed_ms=1,
    changed_ms=2,
    changed_by="root",
)


class FakeSkills:
    """Records requests."""

    def __init__(self) -> None:
        self.asked: list[Any] = []

    def list_all(self, caller: Caller) -> list[SkillRecord]:
        caller.require("skills:read")
        return [COUNTER]

    def find_obstacle(self) -> str:
        return "no sandbox"

    def get(self, caller: Caller, skill_id: str) -> SkillRecord:
        caller.require("skills:read")
        if skill_id != COUNTER.manifest.id:
            raise NotFound(f"no skill {skill_id!r} is installed", field="id")
        return COUNTER

    def upload(self, caller: Caller, sha256: str, offset: int, chunk: bytes) -> int:
        caller.require("skills:write")
        self.asked.append(("upload", sha256, offset, chunk))
        return offset + len(chunk)

    async def install(self, caller: Caller, wanted: InstallSkill) -> SkillRecord:
        return await self._note(caller, "install", wanted)

    async def audit(self, caller: Caller, skill_id: str) -> Audit:
        return Audit(skill=self.get(caller, skill_id), problems=("it is damaged",), functions=3)

    async def quarantine(self, caller: Caller, skill_id: str, reason: str) -> SkillRecord:
        return await self._note(caller, "quarantine", skill_id, reason)

    async def enable(self, caller: Caller, skill_id: str) -> SkillRecord:
        return await self._note(caller, "enable", skill_id)

    async def remove(self, caller: Caller, skill_id: str) -> SkillRecord:
        return await self._note(caller, "remove", skill_id)

    async def _note(self, caller: Caller, *asked: Any) -> SkillRecord:
        caller.require("skills:write")
        await trio.lowlevel.checkpoint()
        self.asked.append(asked)
        return COUNTER
