# ruff: noqa: RUF001 - users type typographic quotes
"""Narrative: the sentences of a drafted account, each kept as far as the conversation proves it.

A model that shortens a conversation may report a permission that was never given, turn a rule round,
exchange two values, or call a failure a success.  A report about a rule is no rule, so a sentence is
compared with what was said, not searched for words of obligation:

    will      a permission, rule, wish or decision, or a sentence about the user: one clause of the
              user's says the same with the same polarity.  A permission has all of that clause's
              conditions and no word of its own; a lifted rule needs the user's words that lift it
    event     everything else: no clause of a rule or of an answer that speaks of the same has the
              other polarity, and three words or more that matter are words of one message
    value     each name and number occurs, with the words that it occurs with

Polarity is the parity of the words that deny: *not*, *without*, *forbid*, *fail*, *off*.  A bound (*no more
than*) denies nothing.  Words are compared by their first letters.

A sentence that is not proved is cut.  A true one in quite other words is cut with it: the entries of a
summary are verbatim, the account is only their thread.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from palyra.core.context.statements import (
    CORRECTION,
    MAX_SENTENCE_CHARS,
    VALUE,
    WORD,
    claim,
    is_normative,
    sentences,
    topic,
    values,
    whole_words,
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STEM_CHARS = 4
_NEAR = 0.6  # share of a clause's words that make another one speak of it
_LEAST_WORDS = 2  # of a clause that has to be grounded in one message

_DENIES = _words(
    "not no never none nothing nobody nowhere neither nor without don't doesn't didn't won't can't"
    " cannot mustn't shouldn't isn't aren't wasn't weren't hasn't haven't couldn't wouldn't forbid"
    " forbids forbade forbidden prohibit prohibits prohibited ban bans banned refuse refuses refused"
    " reject rejects rejected rejecting avoid avoids avoided exclude excludes excluded lift lifts lifted"
    " waive waives waived revoke revokes revoked withdrew withdrawn cancel cancels cancelled canceled"
    " void overrule overruled hate hates hated dislike dislikes disliked fail fails failed failing"
    " failure off unable incomplete stop stops stopped skip skips skipped unavailable remove removes removed delete deletes deleted"
    " deleting removing skipping stopping cancelling canceling avoiding refusing excluding lifting waiving"
    " nicht nichts nie niemals niemand niemanden kein keine keinen keiner keinem keins ohne"
    " verbietet verbot verboten untersagt ausgeschlossen verzichtet aufgehoben hasst hasse"
    " vermeiden vermeidet scheitert gescheitert fehlgeschlagen entfernt entfernen gelöscht löschen"
)
_OPPOSITE = re.compile(
    r"un((?:lock|sign|pa[iy]|read|want|finish|check|approv|protect|publish|test|answer|reach|translat|chang|touch|"
    r"safe|erlaubt|fertig|geprüft)\w*)"
)
_RULED_OUT = re.compile(
    r"\b(?:rul(?:e|es|ed|ing) out|off[- ]limits|out of the question)\b", re.IGNORECASE
)
_BOUNDS = re.compile(
    r"\b(?:no|not|never) (?:\w+ )?(?:more|longer|later|less|fewer|\w+er)(?: \w+)? than\b|\bno more\b(?! than)"
    r"|\b(?:not|never) (?:to )?exceed\w*|\bnicht (?:mehr|länger|später|weniger) als\b",
    re.IGNORECASE,
)
_ABOUT_USER = whole_words(
    r"(?:the |my |our )?users?", r"user[’']s", r"owners?", r"nutzer\w*", r"benutzer\w*", r"anwender\w*",
    r"auftraggeber\w*", r"the (?:person|human|client)",
)  # fmt: skip
_PERMITS = whole_words(
    r"may", r"might as well", r"allow\w*", r"permi\w+", r"fine", r"ok(?:ay)?", r"free", r"safe", r"welcome",
    r"go ahead", r"approv\w*", r"authori[sz]\w*", r"no objection", r"acceptable", r"optional", r"can",
    r"possible", r"no problem", r"trust(?:s|ed)", r"green[- ]?li\w+", r"sanctioned", r"cleared", r"consent\w*",
    r"agree\w*", r"entitled", r"empower\w*", r"unrestricted", r"counts? as", r"on (?:its|their) own",
    r"auf eigene faust", r"selbst(?:st)?ändig", r"hand(?:s|ed) over", r"blessing",
    r"erlaub\w*", r"darf(?:st)?", r"dürfen", r"kann(?:st)?", r"können", r"freigegeben", r"in ordnung", r"zulässig",
    r"zugelassen", r"genehmig\w*", r"gestatte\w*", r"möglich", r"einverstanden", r"freie hand", r"vertrau\w*",
)  # fmt: skip
_UNABLE = re.compile(
    r"\b(?:can|could) ?(?:not|n[’']t)\b|\bcannot\b|\b(?:kann|können|konnte\w*)\b.*\bnicht\b",
    re.IGNORECASE,
)
_LIFTS = whole_words(
    r"lift(?:s|ed)?", r"waive[sd]?", r"revoke[sd]?", r"withdr[ae]w\w*", r"void", r"obsolete", r"overrid\w+",
    r"overrul\w+", r"no longer (?:appl\w+|valid|binding|needed|required|necessary)", r"gave up", r"given up",
    r"cancell?ed", r"ignored?", r"disregard\w*", r"irrelevant", r"exempt\w*", r"drop(?:s|ped) the",
    r"relax\w*", r"aufgehoben", r"hinfällig", r"gilt nicht mehr", r"gelten nicht mehr", r"verzichte\w*",
    r"zurückgenommen", r"entfällt", r"entfallen",
)  # fmt: skip
_DECIDES = whole_words(
    r"decid\w+", r"decisions?", r"chose\w*", r"cho(?:ose|sen|ice)", r"picked", r"settled", r"entschied\w*", r"entscheidung\w*",
    r"beschlossen", r"gewählt",
)  # fmt: skip
_WANTS = whole_words(
    r"(?:new )?(?:rules?|polic(?:y|ies))(?= ?(?::|is\b|are\b|that\b|to\b|says?\b))", r"new (?:rule|policy)", r"from (?:now|here) on", r"any ?time", r"whenever", r"must", r"shall",
    r"should", r"has to", r"have to", r"needs? to", r"required", r"requirements?", r"instruct\w*", r"forb\w+",
    r"prohibit\w*", r"banned", r"always", r"never", r"(?:is|are) (?:not |never |only )?to", r"soll\w*", r"muss\w*", r"müssen",
    r"regeln?", r"vorgabe\w*", r"ab (?:jetzt|sofort)", r"künftig", r"immer", r"nie(?:mals)?", r"verboten", r"untersagt",
)  # fmt: skip
_RULES = whole_words(
    r"rules?", r"polic(?:y|ies)", r"constraints?", r"instructions?", r"requirements?", r"restrictions?", r"bans?", r"limits?",
    r"conditions?", r"obligations?", r"prohibitions?", r"dut(?:y|ies)", r"regeln?", r"vorgaben?", r"verbote?", r"pflicht\w*",
    r"bedingung\w*", r"auflage\w*",
)  # fmt: skip
_NAMES_RULE = (
    "rule rules policy ban limit restriction lifted waived withdrawn void lift regel verbot"
)
_MONTH = re.compile(r"\b(?:\d{1,2}\.?|in|of|last|next|since|until|by|early|late) May\b|\bMay \d")
_ABLE = whole_words(r"can", r"possible", r"kann", r"können", r"möglich")
_COMPARES = re.compile(
    r"\b(?:over|rather than|instead of|more than|als|statt|anstatt)\b|\bto\b(?! \w+ (?:the|a|an|it)\b)",
    re.IGNORECASE,
)
_LIKES = re.compile(r"\b(?:prefer\w*|rather|like\w*|lieber|bevorzug\w*|zieh\w*)\b", re.IGNORECASE)
_NEEDS_YES = _words("approval approvals consent confirmation genehmigung zustimmung")
_ASKS_FIRST = _words(
    "ask asks asking approval approve consent confirm confirmation permission signature sign frag frage fragen"
    " genehmigung zustimmung rückfrage"
)
_ONLY = re.compile(r"\b(?:only|nur|nobody but|no one but)\s+(?P<whom>\w+)", re.IGNORECASE)
_OPEN = re.compile(  # work that is left, no rule
    r"\b(?:still (?:has|have|needs?) to|(?:has|have) (?:yet|still) to)\b|\bnoch\b.*\b(?:werden|zu)\b",
    re.IGNORECASE,
)
# Words that widen a statement: the user has to have said one of the same class.
_WIDE = (
    _words("all any every everything anything everybody anybody each alle allem alles jede jeder jedes jeden"),
    _words("always ever whenever anytime immer stets jederzeit"),
    _words("automatically automatisch freely unrestricted"),
    _words("only exclusively solely nur ausschließlich"),
)  # fmt: skip
# Words that bound a permission: a report of it has one as well.
_NARROW = _words(
    "only except unless until till if when whenever once before after while provided below under within"
    " nur außer wenn falls sofern sobald bis bevor nachdem solange unter"
)
_FRAME = _words(
    "user users owner person human client assistant agent nutzer nutzerin nutzers benutzer anwender assistent"
    " said says say told tells asked asks ask wants want wanted wish wishes wished would like likes prefers"
    " prefer preferred requested requests request requires require required requirement rule rules set made gave"
    " given give stated states instructed demands demanded insisted insists allowed allows allow permitted permits"
    " permit permission approved approves approval may must shall should can decided decides decision chose chosen"
    " chooses choose agreed agrees assistant according expects expected needs need also both then again now"
    " already still yet being takes take taken took place happens happen using gets get keep keeps stays stay"
    " remains remain please möchte möchten will wollte wünscht sagte sagt bat bittet verlangt fordert erlaubt"
    " erlaubte regel regeln soll sollen muss müssen darf dürfen kann können entschied entschieden"
    " beschlossen bleibt bleiben wurde wurden werden worden bitte immer wieder"
)


class Said(NamedTuple):
    """A message of the conversation, or an entry, by its author."""

    by: str  # user, model, tool
    text: str
    is_trusted: bool = True  # no text from outside was read before it


class KeptRule(NamedTuple):
    """A protected entry of the summary."""

    by: str
    text: str


def prove(
    narrative: str, said: Sequence[Said], rules: Sequence[KeptRule], known: Sequence[str]
) -> tuple[list[str], list[str]]:
    """Return the sentences that the conversation proves, and why the others are cut.

    Sentences of `known` texts may be repeated word by word.
    """
    proof = _Proof(said, rules, known)
    found = [(sentence, proof.find_defect(sentence)) for sentence in sentences(narrative)]
    kept = [sentence for sentence, defect in found if not defect]
    return kept, [f"the narrative {defect}" for _, defect in found if defect]


class _Clause(NamedTuple):
    text: str
    stems: frozenset[str]
    parity: int
    by: str
    is_trusted: bool
    asks: bool
    corrects: bool


class _Proof:
    """Conversation, split into clauses once."""

    def __init__(
        self, said: Sequence[Said], rules: Sequence[KeptRule], known: Sequence[str]
    ) -> None:
        self._known = {sentence for text in known for sentence in sentences(text)}
        self._rules = rules
        self._source = " ".join([*(each.text for each in said), *known]).casefold()
        self._clauses = [clause for each in said for clause in _clauses(each)]
        self._stated = [
            sentence
            for each in said
            if each.by == "user"
            for sentence in sentences(each.text)
            if not sentence.endswith("?")
        ]
        self._whole = [frozenset[str]().union(*map(_stems, _pieces(each.text))) for each in said]
        self._units = [line for text in known for line in text.splitlines()]
        for each in said:
            for text in _texts(each):
                clauses = [part for part in _JOINTS.split(text) if values(part)]
                self._units += [text] if len(clauses) < 2 else clauses  # noqa: PLR2004 - a pair

    def find_defect(self, sentence: str) -> str:
        """Return why nothing proves a sentence; "" if it is proved."""
        if sentence in self._known:
            return ""
        unknown = sorted(value for value in values(sentence) if value not in self._source)
        if unknown:
            return f"names {', '.join(unknown[:5])}, which does not occur"
        parts = list(_split(sentence))
        for rule in self._rules:
            if contradicts(sentence, rule.text) or _drops_only(sentence, rule.text):
                return f"says {sentence!r} where the {rule.by} said {rule.text!r}"
        for stated in self._stated:
            if any(_is_excluded(part, stated) for part, _ in parts):
                return f"says {sentence!r} where the user said {stated!r}"
        whole = _content(sentence)
        for part, clause in parts:
            defect = self._find_part(part, clause, _content(part) or whole)
            if defect:
                return f"says {sentence!r}{defect}"
        return ""

    def _find_part(self, part: str, clause: str, content: frozenset[str]) -> str:
        if _LIFTS.search(part) and self._is_of_rule(part):
            return "" if self._is_lifted(content) else "; only the user lifts a rule"
        if _is_will(part):
            is_said = self._is_willed(part, content) or self._repeats_model(part)
            return "" if is_said else "; nothing that the user said says so"
        needs_ground = len(content) >= _LEAST_WORDS and not values(part)
        doubts = (
            (self._is_widened(part), "; nothing that was said goes so far"),
            (not self._joins(part), ", which joins what was said apart"),
            (all(map(self._is_denied, (part, clause))), ", and an answer says the opposite"),
            (needs_ground and not self._is_grounded(content), ", which no message says"),
        )
        return next((doubt for is_so, doubt in doubts if is_so), "")

    def _is_of_rule(self, part: str) -> bool:
        stems = _stems(part)
        return _RULES.search(part) or any(
            stems and 2 * len(stems & _stems(rule.text)) >= len(stems) for rule in self._rules
        )

    def _is_lifted(self, content: frozenset[str]) -> bool:
        return any(
            each.by == "user" and each.corrects and content - _stems(_NAMES_RULE) <= each.stems
            for each in self._clauses
        )

    def _is_willed(self, part: str, content: frozenset[str]) -> bool:
        """True if a clause says the same: of the user, or of a trusted model's decision."""
        permits = _PERMITS.search(_without_names(part)) and not _UNABLE.search(part)
        decides = _DECIDES.search(part) and not permits and not _ABOUT_USER.search(part)
        words, own_parity = _plain_words(part), parity(part)
        wide = [each for each in _WIDE if each & words]
        for each in self._clauses:
            by_model = decides or (_ABLE.search(part) and _ABLE.search(each.text))
            may_say = each.by == "user" or (by_model and each.by == "model" and each.is_trusted)
            if not may_say or each.parity != own_parity or not content:
                continue
            own = _plain_words(each.text)
            if any(not kind & own for kind in wide):
                continue
            if permits and (each.asks or (own & _NARROW and not words & _NARROW)):
                continue
            if words & _NEEDS_YES and not own & _ASKS_FIRST:
                continue
            if not _is_in_order(part, each.text):
                continue
            shared = len(content & each.stems) / len(content)
            if shared >= (1 if permits else _NEAR):
                return True
        return False

    def _repeats_model(self, part: str) -> bool:
        """True if a trusted model said just that, and not of the user."""
        return not _ABOUT_USER.search(part) and any(
            each.by == "model" and each.is_trusted and each.text.strip(" .!") == part.strip(" .!")
            for each in self._clauses
        )

    def _is_widened(self, part: str) -> bool:
        words, stems = _plain_words(part), _stems(part)
        near = [each for each in self._clauses if 2 * len(stems & each.stems) >= len(stems)]
        return any(
            kind & words and not any(kind & _plain_words(each.text) for each in near)
            for kind in _WIDE[:3]
        )

    def _joins(self, part: str) -> bool:
        """True if each value of the part occurs with those of its words that occur with values.

        Two values that both occur may still be exchanged between their subjects.
        """
        words = {word.casefold() for word in WORD.findall(part)}
        units = [unit for unit in self._units if values(unit)]
        texts = [unit.casefold() for unit in self._units]
        for value in values(part):
            beside = [text for text in texts if value in text]
            rivals = [topic(unit) for unit in units if value not in unit.casefold()]
            subjects = {
                word for word in words & topic(part) if any(word in each for each in rivals)
            }
            if not any(all(word in text for word in subjects) for text in beside):
                return False
        return True

    def _is_denied(self, part: str) -> bool:
        """True if the answers and results nearest to the part have the other polarity alone."""
        about = _stems(part) | values(part)
        near = [
            (len(about & each.stems), each.parity) for each in self._clauses if each.by != "user"
        ]
        most = max((shared for shared, _ in near), default=0)
        nearest = {sign for shared, sign in near if shared == most}
        least = (
            _NEAR if parity(part) else 1 / 2
        )  # a success that is claimed needs less to be doubted
        return 0 < most >= least * len(about) and parity(part) not in nearest

    def _is_grounded(self, content: frozenset[str]) -> bool:
        """True if one message has most of the words; of two words, also if none occurs.

        `Small talk took place` is about no message in particular.
        """
        best = max((len(content & each) for each in self._whole), default=0)
        return best >= _NEAR * len(content) or (best == 0 and len(content) == _LEAST_WORDS)


def _is_in_order(part: str, stated: str) -> bool:
    """True unless a comparison is turned round, or its second side is called the first."""
    found = _COMPARES.search(stated)
    if found is None or not (_LIKES.search(stated) and _LIKES.search(part)):
        return True
    mine = _stems(_without_frame(part))
    first = mine & _stems(stated[: found.start()])
    second = mine & _stems(stated[found.end() :])
    turned = _COMPARES.search(part)
    if turned is None:
        return not second or bool(first)
    return not (second & _stems(part[: turned.start()]) or first & _stems(part[turned.end() :]))


def _is_will(part: str) -> bool:
    part = _without_names(part)
    if _ABOUT_USER.search(part) or _DECIDES.search(part):
        return True
    if _OPEN.search(part) or _UNABLE.search(part):
        return False
    return _WANTS.search(part) or _PERMITS.search(part) or _obliges(part)


def _without_names(part: str) -> str:
    """Return the part without dates and values, whose parts are no words: `3 May`, `a-may-be.txt`."""
    return VALUE.sub(" ", _MONTH.sub(" ", part))


def _obliges(part: str) -> bool:
    return is_normative(part) and not _RULES.search(part)


def _drops_only(sentence: str, rule: str) -> bool:
    """True if a sentence gives to others what a rule gives to one: `only Marta talks to the press`."""
    found = _ONLY.search(rule)
    if found is None or _plain_words(sentence) & _NARROW:
        return False
    about = _stems(_without_frame(rule[found.end() :]))
    stems = _stems(sentence)
    return (
        bool(about)
        and _stem(found["whom"].casefold()) not in stems
        and bool(about & stems)
        and (2 * len(about & stems) >= len(about))
    )


def _is_excluded(part: str, stated: str) -> bool:
    """True if a clause of a statement denies just what the part affirms: `use pnpm, not npm`."""
    clauses = list(_JOINTS.split(stated))
    mine = _stems(part)
    return (
        len(clauses) > 1
        and not parity(part)
        and any(
            parity(clause) and (about := _stems(clause)) and about <= mine for clause in clauses
        )
    )


def contradicts(sentence: str, rule: str) -> bool:
    """True if a sentence speaks of a rule with the other polarity."""
    own, stems = claim(rule), _stems(sentence)
    about = _stems(_without_frame(own))
    is_near = bool(about) and len(about & stems) >= _NEAR * len(about)
    return (is_near or speaks_of(sentence, rule)) and parity(claim(sentence)) != parity(own)


def speaks_of(sentence: str, rule: str) -> bool:
    """True if a sentence has most words of what a rule claims."""
    about = _stems(claim(rule))
    return bool(about) and len(about & _stems(sentence)) >= _NEAR * len(about)


_JOINTS = re.compile(
    r"[,;:]\s+(?:and |but |so |und |aber )?|\s+[-–—]\s+"
    r"|\s+(?:because|since|but|although|whereas|weil|aber|sondern|obwohl|denn)\s+",
    re.IGNORECASE,
)
_ALSO = re.compile(r"\s+(?:and|und)\s+", re.IGNORECASE)


def _split(sentence: str) -> Iterator[tuple[str, str]]:
    """Yield the parts of a sentence, each with the clause that it is joined in by *and*."""
    for clause in _JOINTS.split(sentence):
        yield from ((part, clause) for part in _ALSO.split(clause) if part)


def _texts(said: Said) -> Iterable[str]:
    return _pieces(said.text) if said.by == "tool" else sentences(said.text)


def _pieces(text: str) -> Iterator[str]:
    """Yield the lines of a text in pieces that the patterns read in linear time, one blank for many."""
    for line in text.splitlines():
        yield from _PIECE.findall(" ".join(line.split()))


_PIECE = re.compile(rf"\S.{{0,{MAX_SENTENCE_CHARS}}}(?=\s|$)|\S{{{MAX_SENTENCE_CHARS}}}")


def _clauses(said: Said) -> Iterable[_Clause]:
    for text in _texts(said):
        corrects = said.by == "user" and CORRECTION.search(text)
        for part in _JOINTS.split(text):
            if any(map(str.isalnum, part)):
                yield _Clause(
                    text=part,
                    stems=_stems(part) | values(part),
                    parity=parity(part),
                    by=said.by,
                    is_trusted=said.is_trusted,
                    asks=text.rstrip().endswith("?"),
                    corrects=corrects,
                )


def _plain_words(text: str) -> frozenset[str]:
    return frozenset(word.casefold().replace("\u2019", "'") for word in WORD.findall(text))


def _content(text: str) -> frozenset[str]:
    """Return what a part is about beside the words of reporting: stems and values."""
    return _stems(_without_frame(text)) | values(text)


def _without_frame(text: str) -> str:
    return " ".join(word for word in WORD.findall(text) if word.casefold() not in _FRAME)


def _stems(text: str) -> frozenset[str]:
    """Return the first letters of the words that matter: `push` and `pushing` are one."""
    return frozenset(_stem(word) for word in topic(text) - _DENIES)


def _stem(word: str) -> str:
    if (opposite := _OPPOSITE.fullmatch(word)) is not None:
        word = opposite[1]
    if word.startswith("ge") and len(word) > _STEM_CHARS + 2:  # a German participle
        word = word[2:]
    return word[:_STEM_CHARS]


def parity(text: str) -> int:
    """Return 1 if the words of a text deny once, or thrice; a bound (`no more than`) denies nothing."""
    bare = _BOUNDS.sub(" ", text)
    denied = sum(_OPPOSITE.fullmatch(word.casefold()) is not None for word in WORD.findall(bare))
    denied += sum(
        word in _DENIES for word in map(str.casefold, WORD.findall(bare.replace("\u2019", "'")))
    )
    return (denied + len(_RULED_OUT.findall(bare))) % 2
