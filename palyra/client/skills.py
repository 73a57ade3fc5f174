"""Typed methods about WASM skills."""

import base64
import hashlib
from collections.abc import Sequence

from palyra.client.requests import RequestMethods
from palyra.net.protocol.results import Skill, SkillAudit, SkillList, Uploaded

CHUNK_BYTES = 262_144


class SkillMethods(RequestMethods):
    """List, install, audit, quarantine, enable and remove skills."""

    async def list_skills(self) -> SkillList:
        """List all skills by id, and the obstacle if none can be called."""
        return await self._ask("skill.list", {}, SkillList)

    async def get_skill(self, skill_id: str) -> Skill:
        """Return an installed skill.  Raises NotFound."""
        return await self._ask("skill.get", {"id": skill_id}, Skill)

    async def upload_skill(self, package: bytes) -> str:
        """Upload a package in chunks and return its SHA-256, which `install_skill` takes."""
        sha256 = hashlib.sha256(package).hexdigest()
        for offset in range(0, len(package), CHUNK_BYTES):
            chunk = base64.b64encode(package[offset : offset + CHUNK_BYTES]).decode()
            params = {"sha256": sha256, "offset": offset, "chunk": chunk}
            await self._ask("skill.upload", params, Uploaded)
        return sha256

    async def install_skill(
        self, sha256: str, *, grant: Sequence[str] = (), trust_key: str | None = None
    ) -> Skill:
        """Install an uploaded package and grant it these of its declared capabilities.

        `trust_key` is the publisher's key, if known from another channel.
        """
        wanted = {"sha256": sha256, "grant": list(grant), "trust_key": trust_key}
        return await self._mutate("skill.install", wanted, Skill)

    async def audit_skill(self, skill_id: str) -> SkillAudit:
        """Verify the package on the daemon's disk."""
        return await self._ask("skill.audit", {"id": skill_id}, SkillAudit)

    async def quarantine_skill(self, skill_id: str, reason: str) -> Skill:
        """Quarantine a skill: its tools cannot be called."""
        return await self._mutate("skill.quarantine", {"id": skill_id, "reason": reason}, Skill)

    async def enable_skill(self, skill_id: str) -> Skill:
        """Make a skill's tools callable again.  Raises IllegalState after a failed audit."""
        return await self._mutate("skill.enable", {"id": skill_id}, Skill)

    async def remove_skill(self, skill_id: str) -> Skill:
        """Remove a skill and return its last record."""
        return await self._mutate("skill.remove", {"id": skill_id}, Skill)
