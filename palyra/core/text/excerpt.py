"""Truncation of long texts: the start of a text, or its head and tail."""

_BEGUN_CHARS = 8  # kept of a word that is cut: too few for a secret
_SECRET_CHARS = 4_096  # maximal length of a secret without a blank


def truncate_safely(text: str, limit: int) -> str:
    """Truncate to `limit` characters; keep only the first 8 characters of a cut last word.

    This is for texts that are redacted later: the redactor would not recognize half a secret.
    """
    if len(text) <= limit or text[limit].isspace():
        return text[:limit]
    broken = text[max(0, limit - _SECRET_CHARS) : limit]
    begun = 0 if broken[-1:].isspace() else len(broken.split()[-1])
    return text[: limit - max(0, begun - _BEGUN_CHARS)]


def excerpt(text: str, limit_bytes: int) -> tuple[str, bool]:
    """Return the text, or its head and tail around a line with the number of omitted bytes.

    Head and tail together have at most `limit_bytes` of UTF-8 (the tail a third of it, because
    errors are at the end).  The flag is true if text was omitted.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= limit_bytes:
        return text, False
    tail_bytes = limit_bytes // 3
    head = data[: limit_bytes - tail_bytes].decode("utf-8", "ignore")
    tail = data[len(data) - tail_bytes :].decode("utf-8", "ignore")
    left_out = len(data) - len(head.encode()) - len(tail.encode())
    return f"{head}\n[… {left_out} bytes left out …]\n{tail}", True
