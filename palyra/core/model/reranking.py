"""Re-ranking: how well each of some texts answers a question, judged by a model that reads both."""

import msgspec

from palyra.core.journal.records import Usage


class Reranking(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One score per text, in the order of the texts; the scale is the model's own."""

    scores: tuple[float, ...]
    usage: Usage = Usage()
