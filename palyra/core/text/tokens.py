"""Token estimate without a tokenizer: bytes weighted by script class.

The weights are rules of thumb for current byte-pair vocabularies (English prose has about 4.5
characters per token, code and JSON about 3, Chinese about one).  The estimate is for planning
before a request.  The usage that the provider reports corrects it: `learn_factor` keeps a running
ratio of reported to expected tokens for each model, and `corrected` applies it.
"""

# Thousandths of a token per character.
_LETTER = 215  # ASCII letters and blanks: a word and its blank are mostly one token
_DIGIT = 400  # vocabularies split numbers after at most three digits
_MARK = 550  # ASCII punctuation and control characters: alone, or in pairs
_TWO_BYTES = 450  # Latin with accents, Greek, Cyrillic, Hebrew, Arabic
_THREE_BYTES = 900  # Chinese, Japanese, Korean, the scripts of India
_FOUR_BYTES = 2000  # emoji and rare symbols

_DIGITS = b"0123456789"
_LETTERS = b" ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_MARKS = bytes(set(range(0x80)) - set(_DIGITS) - set(_LETTERS))
# The first byte of a UTF-8 character gives its length (RFC 3629 section 3).
_LEADS_TWO = bytes(range(0xC0, 0xE0))
_LEADS_THREE = bytes(range(0xE0, 0xF0))
_LEADS_FOUR = bytes(range(0xF0, 0xF8))


def estimate_tokens(text: str) -> int:
    """Estimated tokens of `text`; 0 for an empty text, at least 1 otherwise."""
    weight = _ascii_weight(text) if text.isascii() else _weight(text)
    return -(-weight // 1000)


def _ascii_weight(text: str) -> int:
    data = text.encode("ascii")
    size = len(data)
    digits = size - len(data.translate(None, _DIGITS))
    marks = size - len(data.translate(None, _MARKS))
    return digits * _DIGIT + marks * _MARK + (size - digits - marks) * _LETTER


def _weight(text: str) -> int:
    data = text.encode("utf-8", "surrogatepass")
    return (
        _count(data, _LETTERS) * _LETTER
        + _count(data, _DIGITS) * _DIGIT
        + _count(data, _MARKS) * _MARK
        + _count(data, _LEADS_TWO) * _TWO_BYTES
        + _count(data, _LEADS_THREE) * _THREE_BYTES
        + _count(data, _LEADS_FOUR) * _FOUR_BYTES
    )


def _count(data: bytes, wanted: bytes) -> int:
    return len(data) - len(data.translate(None, wanted))


# --- correction by the provider's count ----------------------------------------------------------

FACTOR = 10_000  # basis points: the estimate as it is
LEAST_FACTOR, MOST_FACTOR = 5_000, 20_000
LEARN_FROM_TOKENS = 1_000  # a smaller prompt says more about its frame than about its text
LEARN_PART = 4  # a measurement moves the factor by this part of the difference
LEARN_LEAST_BPS = 200  # a smaller difference is noise


def corrected(tokens: int, factor_bps: int) -> int:
    """Return the estimate with the measured factor, rounded up."""
    return tokens if factor_bps == FACTOR else -(-tokens * factor_bps // FACTOR)


def learn_factor(factor_bps: int, expected_tokens: int, reported_tokens: int) -> int:
    """Return the factor after a model call.

    `expected_tokens` includes the old factor; `reported_tokens` is the provider's count.
    """
    if expected_tokens < LEARN_FROM_TOKENS or reported_tokens <= 0:
        return factor_bps
    measured = factor_bps * reported_tokens // expected_tokens
    measured = min(MOST_FACTOR, max(LEAST_FACTOR, measured))
    if abs(measured - factor_bps) < LEARN_LEAST_BPS:
        return factor_bps
    return factor_bps + (measured - factor_bps) // LEARN_PART
