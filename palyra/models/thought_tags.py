"""Reasoning between tags at the start of an answer, as local models write it.  Sans I/O."""

_TAGS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<thought>": "</thought>",
    "<reasoning>": "</reasoning>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",
    "◁think▷": "◁/think▷",
}
_LONGEST = max(map(len, _TAGS))


class ThoughtTags:
    """Reader of the start of one answer: feed it until `is_over`.

    A tag counts only as the first characters of an answer that are not blank: an answer may be about
    tags.  Text that may be the begin of a tag is held until it is known.
    """

    __slots__ = ("_end", "_held", "is_over", "thought")

    def __init__(self) -> None:
        self._held = ""
        self._end = ""  # the tag that ends the reasoning; "": none has begun
        self.is_over = False  # True: everything after is the answer
        self.thought = ""  # reasoning of the last piece

    def take(self, text: str) -> str:
        """Return the part of the answer that a piece adds; `thought` has its reasoning."""
        self._held += text
        self.thought = ""
        if not self._end and not self._begin():
            return self._let_go() if self.is_over else ""
        thought, end, answer = self._held.partition(self._end)
        if end:
            self.thought, self.is_over, self._held = thought, True, ""
            return answer.lstrip()
        kept = next(
            size for size in range(len(self._end) - 1, -1, -1)
            if thought.endswith(self._end[:size])
        )  # fmt: skip
        self.thought = thought[: len(thought) - kept]
        self._held = thought[len(thought) - kept :]
        return ""

    def finish(self) -> str:
        """Return what is held at the end of the answer; unfinished reasoning is no answer."""
        return "" if self._end else self._let_go()

    def _begin(self) -> bool:
        """Open the reasoning if the text so far begins with a tag; else decide whether it may."""
        said = self._held.lstrip()
        for tag, end in _TAGS.items():
            if said.startswith(tag):
                self._end, self._held = end, said[len(tag) :]
                return True
        self.is_over = not any(tag.startswith(said[:_LONGEST]) for tag in _TAGS)
        return False

    def _let_go(self) -> str:
        held, self._held = self._held, ""
        return held
