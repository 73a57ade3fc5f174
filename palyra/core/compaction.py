"""What is left out of a run's prompts since one was too large; decided by `core.overflow`."""

import msgspec


class Compaction(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A cut: what the model is not shown any more.  The tape keeps it."""

    turn: int  # that was too large
    history_runs: int = 0  # the oldest of those that `run.started` names
    inherited_messages: int = 0  # the oldest of the conversation that the run goes on from
    output_bytes: int = 0  # what of an output is shown at most; 0: all of it
    through: int = 0  # messages of the conversation, from its start, whose outputs that holds for
    before_tokens: int = 0  # of the prompt, estimated
    after_tokens: int = 0
