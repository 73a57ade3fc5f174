"""What a checkpoint keeps of a file."""

from palyra.core.text.canonical_json import sha256_hex
from palyra.core.tool.checkpoints import Content, FileState, state_of


def test_the_state_of_a_file_is_its_digest_size_and_mode() -> None:
    """And there is none of a file that is not there."""
    state = FileState(sha256=sha256_hex(b"abc"), size_bytes=3, mode=0o640)
    assert [state, None] == [state_of(Content(b"abc", mode=0o640)), state_of(None)]
