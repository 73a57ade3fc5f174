"""How many of something, in words."""


def counted(number: int, noun: str) -> str:
    """`1 rule`, `2 rules`; for nouns that take an s."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
