"""Typed methods about skills, and what they answer."""

import base64
import hashlib
from collections.abc import Sequence

from palyra.client.requests import RequestMethods
from palyra.net.protocol.results import Skill, SkillAudit, SkillList, Uploaded

CHUNK_BYTES = 262_144


class SkillMethods(RequestMethods):
    """What WASM skills there are."""

    async def list_skills(self) -> SkillList:
        """All of them by id, and why none can be called."""
        return await self._ask("skill.list", {}, SkillList)

    async def get_skill(self, skill_id: str) -> Skill:
        return await self._ask("skill.get", {"id": skill_id}, Skill)

    async def upload_skill(self, package: bytes) -> str:
        """Send a package in pieces; its SHA-256, by which it can be installed."""
        sha256 = hashlib.sha256(package).hexdigest()
        for offset in range(0, len(package), CHUNK_BYTES):
            chunk = base64.b64encode(package[offset : offset + CHUNK_BYTES]).decode()
            params = {"sha256": sha256, "offset": offset, "chunk": chunk}
            await self._ask("skill.upload", params, Uploaded)
        return sha256

    async def install_skill(
        self, sha256: str, *, grant: Sequence[str] = (), trust_key: str | None = None
    ) -> Skill:
        """Install an uploaded package, with these of the capabilities that it declares.

        `trust_key`: the publisher's key, where it is known by other means.
        """
        wanted = {"sha256": sha256, "grant": list(grant), "trust_key": trust_key}
        return await self._mutate("skill.install", wanted, Skill)

    async def audit_skill(self, skill_id: str) -> SkillAudit:
        """The package on the daemon's disk, checked anew."""
        return await self._ask("skill.audit", {"id": skill_id}, SkillAudit)

    async def quarantine_skill(self, skill_id: str, reason: str) -> Skill:
        """The skill, whose tools cannot be called any more."""
        return await self._mutate("skill.quarantine", {"id": skill_id, "reason": reason}, Skill)

    async def enable_skill(self, skill_id: str) -> Skill:
        """The skill, whose tools can be called again.  Raises IllegalState after a bad audit."""
        return await self._mutate("skill.enable", {"id": skill_id}, Skill)

    async def remove_skill(self, skill_id: str) -> Skill:
        """The skill that was removed."""
        return await self._mutate("skill.remove", {"id": skill_id}, Skill)
