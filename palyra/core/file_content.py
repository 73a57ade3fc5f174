"""A file's content and permissions as values: what is written, kept and put back."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Content:
    """A file as it is, or is to be."""

    data: bytes
    mode: int | None = None  # permission bits; None: those of a new file
    is_executable: bool = False  # of a new file
