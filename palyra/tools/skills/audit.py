"""Skill audit: checks of a package before its installation, and of an installed one on disk."""

from palyra.core.skill.manifest import (
    Audit,
    SkillIndex,
    SkillRecord,
    SkillRefused,
    kinds_of,
    version_key,
)
from palyra.core.skill.package import IsSigned, Package, read_package
from palyra.core.trust.external_descriptions import (
    RedactText,
    find_disguise,
    find_hidden,
    find_order,
    find_secret,
    without_words,
)
from palyra.tools.wasm.limits import GuestFailure
from palyra.tools.wasm.module_imports import read_outline
from palyra.tools.wasm.runtime import check_module

DAMAGED = "the package on disk is not the one that was installed"


def check_declared(package: Package) -> None:
    """Check that the manifest declares every capability the module imports.  Raises SkillRefused.

    Blocks for some milliseconds.
    """
    try:
        needed = check_module(package.module)
    except GuestFailure as failure:
        raise SkillRefused(f"the module is refused: {failure.message}") from None
    missing = needed - kinds_of(package.manifest.capabilities)
    if missing:
        raise SkillRefused(
            f"the module imports what its manifest does not declare: {', '.join(sorted(missing))}"
        )


def check_words(package: Package, redact: RedactText) -> None:
    """Check the texts shown to a model for instructions, disguised characters and secrets.

    Raises SkillRefused.
    """
    if redact(package.manifest.description)[1]:
        raise SkillRefused("its description holds something that looks like a secret")
    for tool in package.manifest.tools:
        reason = (
            find_secret(tool.name, tool.description, tool.parameters, redact)
            or find_order(tool.description, tool.parameters)
            or find_disguise(without_words(tool.parameters))
            or find_hidden(tool.description)
        )
        if reason:
            raise SkillRefused(f"{tool.name}: {reason}")


def check_publisher(shelf: SkillIndex, package: Package, trust_key: str | None) -> None:
    """Check that the package has the publisher's known key or the key named by the operator.

    Trust on first use: the key of an unknown publisher is accepted.  Raises SkillRefused.
    """
    name, key = package.manifest.publisher, package.public_key
    if trust_key is not None and trust_key != key:
        raise SkillRefused(f"the package is signed with {key}, not with {trust_key}")
    known = shelf.publishers.get(name)
    if known not in {None, key} and trust_key is None:
        raise SkillRefused(
            f"the key of the publisher {name!r} has changed: it was {known}, it is {key}; "
            "if the publisher confirms the new one by other means, name it with --trust-key"
        )


def check_successor(shelf: SkillIndex, package: Package) -> None:
    """Check that an update is from the same publisher and not an older version.

    Raises SkillRefused.
    """
    before = shelf.skills.get(package.manifest.id)
    if before is None:
        return
    old, new = before.manifest, package.manifest
    if old.publisher != new.publisher:
        raise SkillRefused(
            f"{new.id!r} is installed from {old.publisher!r}, this one is of {new.publisher!r}: "
            "remove the other first"
        )
    if version_key(new.version) < version_key(old.version):
        raise SkillRefused(
            f"version {old.version} of {new.id!r} is installed, {new.version} is older: "
            "remove it first"
        )


def audit_package(
    record: SkillRecord, data: bytes, is_signed: IsSigned, redact: RedactText
) -> Audit:
    """Audit the installed package; the caller has verified the digest of `data`."""
    try:
        package = read_package(data, is_signed)
        check_declared(package)
        check_words(package, redact)
    except SkillRefused as refused:
        return Audit(skill=record, problems=(refused.message,))
    outline = read_outline(package.module)
    return Audit(
        skill=record,
        imports=tuple(sorted({f"{each.module}.{each.name}" for each in outline.imports})),
        functions=outline.functions,
        module_bytes=len(package.module),
    )
