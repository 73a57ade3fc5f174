"""Head and tail of a long text: what the model is shown of an output."""

_BEGUN_CHARS = 8  # of a word that a cut goes through: too few for a secret
_SECRET_CHARS = 4_096  # no secret without a blank in it is longer


def truncate_safely(text: str, limit: int) -> str:
    """The beginning, at most `limit` characters of it; of a word that the cut breaks only the first.

    For what is redacted later: half a secret would not be known as one any more.
    """
    if len(text) <= limit or text[limit].isspace():
        return text[:limit]
    broken = text[max(0, limit - _SECRET_CHARS) : limit]
    begun = 0 if broken[-1:].isspace() else len(broken.split()[-1])
    return text[: limit - max(0, begun - _BEGUN_CHARS)]


def excerpt(text: str, limit_bytes: int) -> tuple[str, bool]:
    """The text, or its head and tail round a line that says how much is left out.

    The result's two ends together have at most `limit_bytes` of UTF-8 (the tail a third of it,
    because errors stand at the end); the flag tells whether anything was left out.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit_bytes:
        return text, False
    tail_bytes = limit_bytes // 3
    head = data[: limit_bytes - tail_bytes].decode("utf-8", "ignore")
    tail = data[len(data) - tail_bytes :].decode("utf-8", "ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {left_out} bytes left out …]\n{tail}", True
