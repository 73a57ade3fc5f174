# ruff: noqa: RUF001 - users type typographic quotes
"""Forms of sentences that oblige without a word of obligation, in English and German.

`core.context.statements` first looks for cues: words that a class can hardly be expressed without.
What has no cue may still bind by its form: an imperative (`Log errors to stderr.`), a universal in
the present tense (`All dates are stored in UTC.`), a condition, an appointment, a German passive or
infinitive.  A form is recognized by its closed words (determiners, prepositions, auxiliaries), which
are listed here completely, and for imperatives by a list of verbs.  A sentence in a past tense reports
and binds nothing.

A wrong positive keeps a sentence longer than it deserves; a wrong negative drops a rule when room is
short.  So doubt decides for the form.
"""

import re
from typing import Literal

Form = Literal["constraint", "ask"]

_DAYS = "(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_MONTHS = (
    "(?:january|february|march|april|may|june|july|august|september|october|november|december)"
)
_TAGE = "(?:montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonnabend|sonntag)"
_MONATE = "(?:januar|februar|märz|april|mai|juni|juli|august|september|oktober|november|dezember)"
_PAST = re.compile(
    r"\b(?:was|were|had|did|didn[’']?t|been|took|came|went|got|gave|made|said|told|saw|ran|found|"
    r"sent|grew|lost|broke|wrote|began|became|knew|thought|felt|yesterday|earlier|ago|"
    r"last (?:week|month|year|night|time)|war|waren|hatten?|wurden?|gab|kam|ging|lief|liefen|"
    r"gestern|vorhin|neulich|letzte[nrsm]?)\b"
    # a regular past tense: not after a form of be, nor as an adjective after a determiner
    r"|(?<!\bis )(?<!\bare )(?<!\bbe )(?<!\bnot )(?<!\bthe )(?<!\ball )(?<!\bevery )(?<!\beach )"
    r"(?<!\bany )(?<!\ban )(?<!\ba )\b[a-z]{2,}(?<!ne)(?<!e)ed\b"
    r"|\b(?:hat|haben|habe|hast|ist|sind|bin)\b.*\bge[a-zäöüß]+(?:t|en)\W*$"
)
# Determiners, pronouns, particles and prepositions that can follow an English imperative.
_FOLLOWS = (
    r"(?:the|an?|all|each|every|any|my|our|your|his|her|its|their|this|that|these|those|it|them|me|"
    r"us|him|everything|everyone|anything|nothing|only|no|both|either|up|out|down|off|back|over|"
    r"away|in|into|under|on|onto|with|without|from|to|for|by|at|as|of|before|after|between|through|"
    r"via|until|towards?|against|not|sure|clear|yourself|what|which|how|where)"
)
_PREPOSITIONS = (
    r"(?:in|into|under|on|onto|with|without|from|to|for|by|at|as|before|after|between|through|via|"
    r"using|until|against|instead|over|behind|next|only|ahead)"
)
_FINITE = (  # the verb of a statement whose subject is one word
    r"(?:is|are|was|were|has|have|had|will|would|can|could|does|did|do|may|might|\w{2,}ed|remain|fail|work|"
    r"(?:seem|look|remain|fail|work|show|run|use|live|listen|sit|take|need|come|go|stay|depend|belong|point|"
    r"return|start|end|stop|read|write|contain|hold|keep|make|mean|get|give|print|say|want|wait|stand|"
    r"lie|hang|break|crash|cost|happen|load|call|send|serve|connect|talk|speak|expect|consist|differ|arrive)s|"
    r"goe?s|crashes|comes|läuft|liegt|lauscht|steht|geht|kommt|zeigt|hört|gehört)"
)
# Verbs that hardly begin a sentence as a noun, and those that often do.
_VERBS = (
    "add adapt adjust adopt align allow append apply assume avoid await begin bring choose clean "
    "collect compare compile compress configure confirm consider contact convert create cut debug "
    "declare define delegate delete deploy describe disable discard distinguish downgrade drop edit "
    "emit enable encode encrypt ensure escape exclude execute expect explain expose extend extract "
    "fetch fill find finish fix follow forget freeze generate get give go handle hide hold honou?r "
    "ignore implement improve include increase inform insert inspect install introduce invoke isolate "
    "justify keep leave let lower maintain make measure mention merge migrate minimi[sz]e mock move "
    "notify obey omit open optimi[sz]e overwrite parse pass paste perform pick pin postpone prepare "
    "preserve prevent print produce protect prove provide publish pull purge push put quit quote raise "
    "read rebase rebuild redact reduce refactor refuse reject reload remove rename render reorder repeat "
    "replace reply reset resolve respect restart restore restrict retry return reuse revert rewrite roll "
    "rotate sanitise sanitize save select send separate serve set ship shorten show skip sort speak split "
    "squash start stay steer stick stop strip submit swap switch take tell throw treat trim trust try "
    "round reserve mirror feed spell fall hand sleep double-check proofread "
    "backport blacklist whitelist "
    "turn undo unify uninstall upgrade upload use validate verify wait warn wrap write"
).replace(" ", "|")
_NOUNS_TOO = (
    "answer archive ask audit base benchmark block branch build bump cache call cap change check "
    "clone close comment commit copy count cover document drain dump export flag format group guard "
    "import index label limit link list load lock log look mail map mark message monitor mount name note "
    "number order patch plan place post prefix probe profile query queue rank rate record register "
    "release report request review route run scan schedule search share sign stage state store stream "
    "stub tag test text throttle time trace track trigger type update version watch work"
).replace(" ", "|")
_LEAD = (
    r"(?:(?:and|then|so|now|also|first|finally|next|otherwise|instead|ok|okay|well|oh|but|just|simply|"
    r"for \w+|here|there|in \w+)[, ] ?){0,2}"
)
_IMPERATIVE = re.compile(
    rf"{_LEAD}(?:"
    rf"(?:{_VERBS}|{_NOUNS_TOO}) {_FOLLOWS}\b|back (?:up|out|off) "
    rf"|(?:{_VERBS}) (?!\w+ly\b)(?!(?:\S+ ){{1,4}}(?:is|are|has|have|does|do|can|will)\b)\S+ \S+"
    rf"|(?:{_NOUNS_TOO}) (?!{_FINITE}\b)\S+ {_PREPOSITIONS}\b)"
)
# Any other word directly before a determiner is a verb in the imperative as well, unless it is one of
# the words that may stand there in a statement: `Mirror the bucket`, but `While the bucket`.
_NO_IMPERATIVE = (
    r"(?:the|an?|all|each|every|any|no|both|either|neither|this|that|these|those|it|there|here|i|we|you|he|she|"
    r"they|who|what|which|when|where|why|how|if|while|once|since|because|although|though|whereas|unless|"
    r"until|till|than|as|and|or|but|nor|yet|so|then|also|only|even|just|still|maybe|perhaps|sometimes|often|"
    r"in|into|on|onto|at|by|for|from|to|of|off|with|without|within|under|over|above|below|behind|between|"
    r"before|after|during|through|throughout|across|against|along|around|about|among|beside|besides|"
    r"beyond|despite|except|like|near|per|regarding|than|toward|towards|upon|via|versus|not|yes|ok|okay|"
    r"half|most|much|many|some|such|both|quite|rather|twice|thanks?|sorry|see|apparently|\w+ly|\w+ing|"
    r"\w{2,}ed|\w+s|is|are|was|were|am|be|been|do|does|did|has|have|had|will|would|can|could|shall|may|might|"
    r"der|die|das|dem|den|des|ein\w*|mein\w*|dein\w*|unser\w*|kein\w*|ich|du|er|sie|es|wir|ihr|man|ja|nein|im|am|"
    r"zum|zur|und|oder|aber|wenn|weil|nach|mit|von|bei|aus|auf|vor|zu|hier|dort|heute|gestern|jetzt|"
    r"given|because|saw|found|got|made|took|went|ran|told|said|gave|sent|wrote|broke|lost|kept|met)"
)
_DETERMINERS = r"(?:the|an?|all|each|every|any|my|our|your|his|her|their|this|that|these|those|it|them|me|us|him|only)"
_OPEN_IMPERATIVE = re.compile(
    rf"{_LEAD}(?!{_NO_IMPERATIVE}\b)[a-z][a-z-]+ "
    rf"{_DETERMINERS} (?!.*(?<![,;] )\bis\b)"
)
_LATER_CLAUSE = re.compile(rf"[,;:] (?:then |please )?(?:{_VERBS}|fall|hör|bleib) {_FOLLOWS}\b")
_LASTING = re.compile(
    r"\b(?:each|every|all|any|only|always|before|after|ahead of|until|from (?:now|here) on|by hand|"
    r"instead|no|without|whenever|jede[rsnm]?|alle[rsnm]?|nur|immer|vor|nach|ausschließlich|ab (?:hier|"
    r"jetzt|sofort)|zuerst|in ruhe|kein\w*)\b"
)
# German verbs in the imperative end in -e, or are one of these strong or shortened forms.
_STEMS = (
    "leg gib nimm lass lies sieh halt stell setz mach schreib führ bau prüf lösch füg pack räum schick "
    "ruf trag nutz benutz behalt wirf hilf sprich bleib lauf geh komm sag frag zeig hol bring start "
    "stopp teil trenn sperr ignorier"
).replace(" ", "|")
_NO_VERBS = (
    r"(?:die|diese|jene|alle|jede|eine|meine|deine|seine|ihre|unsere|eure|keine|welche|solche|manche|"
    r"viele|wenige|einige|mehrere|beide|andere|heute|danke|bitte|gute|liebe|neue|alte|letzte|erste|"
    r"zweite|dritte|nächste|habe|hatte|hätte|werde|würde|wäre|könnte|sollte|müsste|möchte|ohne|gerade|"
    r"ende|leute|the|these|those|there|here|we|he|she|some|maybe|use)\b"
)
_DE_FOLLOWS = (
    r"(?:den|die|das|dem|der|des|ein(?:e[nmrs]?)?|kein\w*|jede[nmrs]?|alle[nmrs]?|mein\w*|unser\w*|dein\w*|"
    r"mir|mich|uns|es|sie|ihn|ihm|ihr|nur|immer|zuerst|dabei|dann|für|im|in|auf|unter|vor|nach|ab|an|zu|"
    r"mit|von|beim?|über|aus|gegen|nichts|nie|ausschließlich)"
)
_DE_IMPERATIVE = re.compile(
    r"(?:(?:und|dann|also|nun|jetzt|sonst|ansonsten|danach)[, ] ?){0,2}"
    rf"(?!{_NO_VERBS})(?:[a-zäöüß]{{2,}}e|(?:{_STEMS})) (?:bitte )?"
    rf"(?:{_DE_FOLLOWS}\b|[a-zäöüß]+e[nmrs] [A-ZÄÖÜ]|(?:[A-ZÄÖÜ0-9][\w-]* ){{1,3}}(?:in|auf|nach|unter|ab|an|mit|vor|für|bei|zu)\b)"
    r"(?![^,]*\b(?:ist|sind|war|hat|haben|wird|werden|kann|können|geht)\b)"
)
_IMPERATIVES = _IMPERATIVE, _OPEN_IMPERATIVE
_UNIVERSAL = re.compile(
    r"(?:every|each|all|any|no|both|neither|alle[rsnm]?|jede[rsnm]?|sämtliche\w*|beide) (?:\S+ ){2,}"
)
_CONDITION = re.compile(
    r"(?:when|once|given|where|while|after|before|whoever|whatever|whichever|wherever|in the event|in case|"
    r"wer|bei (?!mir|uns|dir|ihm|ihr)\S+) "
    r"|(?:ist|sind|hat|haben|wird|werden|kommt|kommen|gibt|geht|bleibt|fehlt|fehlen) [^,?]+, "
)
_DISTRIBUTIVE = re.compile(
    r"\b(?:every|each|jede[rsnm]?)\b|\b(?:an?|one|two|three|\d+|eine?n?|zwei|drei) \S+ (?:per|pro|je)\b"
)
_APPOINTMENT = re.compile(
    rf"\b(?:on|by|until|till|before|this|next|from) (?:\w+ )?(?:{_DAYS}|{_MONTHS} \d|\d{{1,2}}\w* (?:of )?{_MONTHS})"
    r"|\b(?:at|before|after|until|till) (?:midnight|noon|lunch|dawn|\d{1,2}(?::\d\d)? ?(?:[ap]m|o.clock)\b)"
    r"|\bin (?:\w+|\d+) (?:minute|hour|day|week|month|year)s?\b"
    r"|\b(?:in|vor|binnen|nach) (?:\w+|\d+) (?:minuten?|stunden?|tage?n?|wochen?|monate?n?)\b"
    r"|\b(?:mitternacht|(?:vor dem|zum|gegen) mittag)\b"
    r"|\bby (?:tomorrow|tonight|noon|midnight|then|the end|end of|next|\d)"
    rf"|\b(?:am|bis|ab|ist|zum|vor) (?:zum |nächsten |kommenden )?(?:{_TAGE}|\d{{1,2}}\. ?(?:{_MONATE}|\d))"
    r"|\bbis (?:morgen|heute|mittag|mitternacht|ende|\d)"
)
_PASSIVE = re.compile(
    r"\b(?:wird|werden)\b (?:\S+ ){0,4}(?:nicht|nie) \w+"
    r"|\b(?:ist|sind|hat|haben)\b(?!.*\b(?:schwer|leicht|einfach|gut|kaum|nichts) zu\b).*\b(?:[a-zäöü]+zu[a-zäöü]{3,}en|"
    r"zu [a-zäöüß]+e?n)\b"
    r"|\b(?:is|are) (?:not |never |only )?to [a-z]+"
    r"|\b(?:is|are) (?:never|not) [a-z]+(?:ed|en)\b"
    r"|\bgehör(?:t|en) (?!zu\b|ihm\b|ihr\b|mir\b|uns\b)(?:\S+ ){0,3}[a-zäöü]+t\b"
)
_MIN_WORDS = 3  # `Go on.` asks for nothing that lasts


def find_form(sentence: str) -> Form | None:
    """Return the class that the form of a sentence has; None if it only describes or reports."""
    text = sentence.lower()
    if sentence.endswith("?") or len(text.split(maxsplit=_MIN_WORDS)) < _MIN_WORDS:
        return None
    german = text[:1] + sentence[1:]  # nouns have capitals
    if (
        any(form.match(text) for form in _IMPERATIVES)
        or _DE_IMPERATIVE.match(german)
        or _LATER_CLAUSE.search(text)
    ):
        return "constraint" if _LASTING.search(text) else "ask"
    if _PAST.search(text):
        return None
    binds = (
        _UNIVERSAL.match(text)
        or _DISTRIBUTIVE.search(text)
        or _CONDITION.match(text)
        or _APPOINTMENT.search(text)
        or _PASSIVE.search(text)
    )
    return "constraint" if binds else None
