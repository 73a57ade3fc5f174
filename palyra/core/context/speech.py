# ruff: noqa: RUF001 - users type typographic quotes
"""Speech: how a person's sentence is meant, by the forms of English and German, before what it says.

A word of obligation or of taste proves nothing by itself: "always" is in "always ask me first" and in
"always the same with this printer", "never" in "never touch prod" and in "I never understood monads".
So this module asks who acts and in which mood: an order to the reader, a report of the words or wants
of others, a supposition, a story of the past, irony, a passing mood.  It knows closed classes of words
(pronouns, determiners, auxiliaries, irregular past tenses, particles) and short lists of the verbs that
report, suppose and feel; the words that carry content are open.

`plain` makes chat and careful prose alike: small letters, whole contractions, common abbreviations and
slips of typing.
"""

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Literal, NamedTuple

Talk = Literal["ironic", "reported", "supposed", "past", "passing", "idle", "own", "task"]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- plain text ----------------------------------------------------------------------------------

_SHORT_EN = {
    "im": "i'm", "ive": "i've", "dont": "don't", "doesnt": "doesn't", "didnt": "didn't", "cant": "can't",
    "wont": "won't", "isnt": "isn't", "arent": "aren't", "wasnt": "wasn't", "thats": "that's", "lets": "let's",
    "shouldnt": "shouldn't", "wouldnt": "wouldn't", "couldnt": "couldn't", "youre": "you're", "theyre": "they're",
    "hes": "he's", "shes": "she's", "whats": "what's", "mustnt": "mustn't", "havent": "haven't", "hasnt": "hasn't",
    "u": "you", "ur": "your", "r": "are", "pls": "please", "plz": "please", "plss": "please", "b4": "before",
    "rn": "right now", "atm": "at the moment", "tmrw": "tomorrow", "tmr": "tomorrow", "tonite": "tonight",
    "bc": "because", "cuz": "because", "cos": "because", "gonna": "going to", "wanna": "want to", "gotta": "have to",
    "ppl": "people", "msg": "message", "msgs": "messages", "thx": "thanks", "w": "with",
}  # fmt: skip
_SHORT_DE = {
    "hab": "habe", "nich": "nicht", "net": "nicht", "nix": "nichts", "ne": "eine", "nen": "einen", "nem": "einem",
    "grad": "gerade", "heut": "heute", "is": "ist", "würd": "würde", "hätt": "hätte", "wär": "wäre", "könnt": "könnte",
    "glaub": "glaube", "denk": "denke", "brauch": "brauche", "iwie": "irgendwie", "iwann": "irgendwann", "vllt": "vielleicht",
    "evtl": "eventuell", "bissl": "bisschen", "eig": "eigentlich", "atm": "gerade", "pls": "bitte", "plz": "bitte", "thx": "danke",
    "u": "und", "od": "oder", "auf'm": "auf dem", "ma": "mal", "jz": "jetzt", "jzt": "jetzt", "lg": "",
}  # fmt: skip
_GERMAN = _words(
    "der die das den dem des und oder ich du er wir ihr nicht ist sind war ein eine einen einem einer kein keine keinen mein meine meinen dein unser unsere "
    "mit auf für zu zum zur bei beim im am vom von aus nach bitte nur immer nie auch noch schon mal mir mich dir dich uns wenn weil dass als wie was wer wo "
    "warum hab habe hat haben bin wird werden kann muss soll darf will alle alles jede jeder jetzt heute sich es sie man doch ja nein nee keiner niemand "
    "ohne vor über unter erst bis"
)
_ENGLISH = _words(
    "the i you he she it we they a an is are was were be been to of in on at for from with without and or but not no don't dont do does did my your our his "
    "her their this that these those if when what who why how always never only please can could should must may will would have has had im i'm it's me us "
    "them all every any"
)
# Words that decide, with which slips of typing are compared: a letter missing, doubled or exchanged.
_DECIDING = _words(
    "always never please remember prefer whenever default future forward nothing without immer niemals bitte künftig zukunft grundsätzlich jedes bevorzuge "
    "lieber niemand verboten allergic decided switched vegetarian"
)


def _slips(word: str) -> set[str]:
    letters = range(1, len(word))
    missing = {word[:at] + word[at + 1 :] for at in letters}
    turned = {word[:at] + word[at + 1] + word[at] + word[at + 2 :] for at in range(len(word) - 1)}
    doubled = {word[:at] + word[at] + word[at:] for at in letters}
    return (missing | turned | doubled) - {word}


_REAL = {
    "ever",
    "bite",
    "bitten",
    "bittet",
    "leber",
    "liebe",
    "nie",
    "pleas",
    "jedem",
    "jede",
    "perfer",
    "biete",
}
_SLIPS = {
    slip: word
    for word in _DECIDING
    for slip in _slips(word)
    if slip not in _REAL - {"pleas", "perfer"}
}
_PLAIN_WORD = re.compile(r"[\w/']+")


@lru_cache(maxsize=8_192)
def plain(text: str) -> str:
    """Return the text in small letters, with chat abbreviations and slips of typing written out."""
    low = " ".join(text.replace("’", "'").replace("‘", "'").lower().split())

    words = _PLAIN_WORD.findall(low)
    german = sum(map(_GERMAN.__contains__, words))
    short = (
        _SHORT_DE if german > sum(map(_ENGLISH.__contains__, words)) or "ß" in low else _SHORT_EN
    )

    def whole(match: re.Match[str]) -> str:
        word = match[0]
        return short.get(word) or _SLIPS.get(word) or word

    return _PLAIN_WORD.sub(whole, low)


_LEAD = re.compile(
    r"(?:(?:oh|ah|ach(?: ja| so| übrigens)?|ok(?:ay)?|hi(?: there)?|hey(?: there)?|hello|hallo|moin|servus|na|"
    r"guten (?:morgen|tag|abend)|good (?:morning|evening|afternoon)|so|well|also|and|but|plus|anyway|btw|by the way|fyi|ps|"
    r"just (?:so you know|fyi|a heads[- ]up|to let you know)|heads[- ]up|for (?:context|info|your information|the record|"
    r"future reference|the future|next time)|as (?:i said|you know|mentioned)|you know(?: what)?|one (?:more |last |other )?thing|"
    r"another thing|quick (?:note|info|thing)|note(?: to self)?|info|zur info|nur (?:so |kurz )?(?:zur info|nebenbei)|nebenbei|kurz|"
    r"(?:nur )?damit du(?:'s| es)? weißt|noch (?:was|etwas|eins|eine sache)|und|aber|naja|na ja|ja|nee|nein|no(?=,)|yes|yeah|yep|nope|right(?=,)|genau|gut(?=[,. ])|"
    r"danke|thanks|thank you|please|bitte|actually|eigentlich(?=,)|übrigens|wichtig|important|correction|korrektur|update|sorry|wait|hang on|"
    r"hm+|erm|uh|um|look(?=,)|listen(?=,)|frankly|honestly|to be honest|ehrlich gesagt|reminder|regel|rule|fact|preference|decision|entscheidung|"
    r"turns out|good news|news|behalte?(?: bitte)?(?: es)?(?: im kopf)?|mach\w* dir (?:bitte )?(?:eine? )?notiz|notiere?(?: dir)?(?: bitte)?|in case (?:it matters|you wonder\w*)|falls (?:es )?(?:relevant|wichtig)(?: ist)?|merke? dir(?: bitte)?|denke? (?:daran|dran)|vergiss nicht|"
    r"remember(?: this| that)?|keep in mind(?: that)?|bear in mind(?: that)?|don't forget(?: that)?|memori[sz]e(?: that)?|note that|beachte)"
    r"(?![\w'])[\s,:;.!–—-]*(?:(?:dass|that|:)\s+)?)+"
)


def without_lead(text: str) -> str:
    """Return a plain text without greetings, particles and requests to take note at its begin."""
    match = _LEAD.match(text)
    rest = text[match.end() :] if match else text
    return rest or text


class Forms:
    """Alternative forms of a sentence; those that begin it are tried once, not at each place.

    `re` tries every alternative at every place, an anchored one too, which costs most of a search.
    """

    def __init__(self, pattern: str) -> None:
        parts = list(_alternatives(pattern))
        first = [part for part in parts if part.startswith("^")]
        others = [part for part in parts if not part.startswith("^")]
        self._first = re.compile("|".join(first)) if first else None
        self._others = re.compile("|".join(others)) if others else None

    def search(self, text: str) -> bool:
        """True if a form is in the text."""
        if self._first is not None and self._first.match(text) is not None:
            return True
        return self._others is not None and self._others.search(text) is not None


def _alternatives(pattern: str) -> Iterator[str]:
    """Yield the alternatives of a pattern that are in no group."""
    depth, start, at = 0, 0, 0
    while at < len(pattern):
        char = pattern[at]
        if char == "\\":
            at += 1
        elif char == "[":
            at = pattern.index("]", at + 2)
        elif char in "()":
            depth += 1 if char == "(" else -1
        elif char == "|" and not depth:
            yield pattern[start:at]
            start = at + 1
        at += 1
    yield pattern[start:]


# --- moods ---------------------------------------------------------------------------------------

_IRONIC = Forms(
    r"^(?:yeah,? (?:right|sure)|oh,? (?:great|joy|ja|wow|toll|super|sure|yes|how nice|wonderful|lovely|good)\b(?!,? please)|na (?:toll|super|klasse|prima|bravo)"
    r"|ja,? (?:klar|sicher|genau|nee|ne|natürlich)\b|(?:great|wonderful|fantastic|awesome|brilliant|lovely|super|toll|klasse|prima|herrlich|wunderbar),? "
    r"(?:another|just what|jetzt|schon wieder|again|wieder|noch ein\w*)|sure,? (?:because|let's|why not|go ahead)|of course,? because|klar(?: doch)?,|"
    r"as if|als ob|als wenn|wer(?:'s| es)? glaubt|typisch\b|typical\b|thanks for nothing|danke für nichts|ach (?:was|nee|wirklich)|was für ein\w* (?:freude|spaß)|"
    r"how (?:nice|lovely|wonderful)|wie schön,? (?:dass|wenn))"
    r"|\b(?:lol|rofl|lmao|ha(?:ha)+\w*|hihi\w*|hehe\w*|xd|jk|just kidding|kidding|only joking|(?:war )?(?:nur )?(?:ein )?(?:scherz|spaß|witz)|hilarious|drama queen|"
    r"can you believe|what a joke|just what i (?:wanted|needed)|genau mein humor|wetten|wer's glaubt|pff+|tja|my (?:absolute )?favou?rite(?: thing)?[,.!]* (?:not|said no one))\b"
    r"|\bnot!|;-?\)|[😂🙄😅🤣😜😏]|(?<!\S)/s\b"
)
_SHOUTED = re.compile(r"\b(?:LOVE|LIEBE|ADORE|ENJOY|HATE|SO|GENAU|TOTALLY|REALLY)\b")
_SOBS = re.compile(r"^(?:ugh+|argh+|gah|meh|boah|puh|oje|mist|damn|man(?=,))\b")

_I = r"(?:i|we|ich|wir)"
_OTHERS_NP = (
    r"(?:he|she|they|er|someone|somebody|people|everyone|everybody|nobody|no one|jemand|alle|viele|man|leute|"
    r"(?:my|our|the|his|her|their|a|an|some|most|many|one|this|that|mein\w*|unser\w*|der|die|das|den|ein\w*|sein\w*|ihr\w*|dies\w*)"
    r"(?: [\w'-]+){1,4}?|frau \w+|herr \w+)"
)
_SAYS = (
    r"(?:says?|said|thinks?|thought|claims?|claimed|tells?|told|wrote|writes|recommends?|recommended|suggests?|suggested|swears?|insists?|insisted|"
    r"complains?|complained|keeps? (?:saying|telling|asking)|believes?|argues?|argued|asks?|asked|mentioned|announced|warned|"
    r"meint|meinte|meinen|sagt|sagte|sagen|findet|fand|behauptet\w*|glaubt|glaubte|schreibt|schrieb|empfiehlt|empfahl|erzählt\w*|schwört|besteht darauf|hat (?:gesagt|gemeint|behauptet|erzählt|geschrieben|empfohlen))"
)
_REPORTED = Forms(
    rf"^{_OTHERS_NP} (?:\w+ )?{_SAYS}\b(?! (?:me |us )?when\b)"
    rf"|^(?:he|she|they|er)\b(?:'s|'re|'ve|'d)?(?! (?:is|are) (?:my|our))|\b{_SAYS}(?: (?:once|always|mal|immer|mir|uns|me|us))?: ?[\"“„']"
    r"|\b(?:according to|it says|so it says|(?:he|she|they|er|sie|es|mir) (?:said|meinte|sagte)|told (?:me|us)|i was told|(?:i|we) (?:heard|read) (?:that|somewhere|in|about|it)\b|(?:ich|wir) (?:habe|haben) (?:gehört|gelesen)|"
    r"angeblich|apparently|anscheinend|supposedly|man sagt|es heißt,? |they say|people say|you said|du hast gesagt|wurde mir gesagt|laut (?!denken)\w+|zufolge|steht da|stand da|quote,|unquote|the saying|sprichwort)\b"
    rf"|^{_OTHERS_NP} (?:\w+ )?(?:wants?|wanted|would like|prefers?|likes?|loves?|hates?|dislikes?|needs us|expects?|will|möchte|wollte|mag|liebt|hasst|bevorzugt)\b(?! (?:not )?be\b)"
    r"|^(?:\w+ )?(?:article|post|book|docs?|documentation|manual|readme|wiki|news|poster|sign|artikel|buch|handbuch|doku|zeitung) (?:\w+ )?(?:says?|claims?|recommends?|sagt|steht)\b"
)
# A name and a verb of taste or report, as typed with a capital.
_NAMED = re.compile(
    rf"^(?!(?:I|We|You|Our|My|The|Ich|Wir|Du|Sie|Please|Bitte|Always|Never|What|Who|Would|Could|Should|Can|Will|Do|Does|If|When|Some|It|This|That|There|Really|Also|Just|And|But|So|Mir|Mich|Das|Es)\b)[A-ZÄÖÜ][a-zäöüß]+(?: [A-ZÄÖÜ][a-zäöüß]+)? (?:always |never |usually |really |also |once )?"
    rf"(?:{_SAYS}|prefers?|likes?|loves?|hates?|wants?|dislikes?|mag|bevorzugt|liebt|hasst|will|möchte)\b"
)
_SUPPOSED = Forms(
    r"^(?:suppose|supposing|imagine|what if|let's (?:say|assume|pretend)|say (?:that )?(?:i|we)\b|assume (?:that )?(?:i|we|you)\b|assuming i|pretend (?:that )?(?:i|we|you|to)\b|hypothetically|in theory|"
    r"angenommen|nehmen wir an|stell dir vor|mal angenommen|was wäre|gesetzt den fall|theoretisch|tu so,? als (?:ob |wärst |wär\w* |würd\w* )?(?:ich|du|wir)|act as|you are (?:a|an|now)\b|du bist (?:ein|jetzt))\b"
    r"|^(?:if|when) (?:i|we|he|she|they|you|it|only|\w+) (?:\w+ )?(?:\w{3,}ed|were|was|had|could|lived|did|knew|won|went|got)\b|\bif only\b|\bi wish\b|\bi (?:could|might|may) (?!not\b)|\bone day\b|\bsomeday\b|\bwho knows\b|\bwe'll see\b"
    r"|\b(?:i|we)(?:'d| would) (?!rather|like|prefer|love|appreciate|really (?:like|prefer|appreciate)|sooner|never want|want you|be (?:grateful|happy|glad|nice|great))\w+"
    r"|\b(?:might|perhaps)\b|^maybe\b|\bmaybe (?:we|i|you)\b|\bich wünschte\b|\bvielleicht\b|\beventuell\b|\birgendwann\b|\bwer weiß\b|\bmal sehen\b"
    r"|(?<!liebsten )\b(?:hätte|hätten|wäre|wären|würde|würden|könnte|könnten)\b(?! (?:super|gut|schön|nett|toll|klasse|prima|mir)\b.* wenn (?:du|ihr|sie)\b)(?! (?:ich |wir )?(?:gern\w*|lieber|am liebsten|bevorzugen))(?!.*\b(?:gern|gerne|lieber|bevorzugen)\b)"
    r"|^(?:translate|übersetz\w*|rewrite|rephrase|summari[sz]e|write (?:a|me a|an?) (?:test|story|poem|text|limerick|song|sentence|novel)|for example|for instance|zum beispiel|z\.b\.)\b"
)
_PAST_EN = (
    r"(?:was|were|had|did|didn't|got|went|came|took|saw|made|gave|said|told|thought|knew|felt|found|left|lost|met|ran|sat|spoke|stood|"
    r"taught|wrote|broke|brought|bought|built|caught|drank|drove|ate|fell|flew|forgot|grew|heard|held|kept|led|let(?= anyone| us| me)|paid|read(?= it| the)|rode|"
    r"rang|sang|slept|sold|sent|shook|shot|showed|spent|swam|threw|understood|woke|won|wore|began|became|chose|used to|"
    r"(?!need|feed|speed|exceed|proceed|succeed|embed|bed|red|shed|indeed)[a-z]{2,}ed)"
)
# Changes in the past tense, whose result holds from then on.
CHANGES = (
    r"(?:moved|swapped|traded|switched|changed|renamed|replaced|migrated|quit|stopped|started|joined|retired|married|got (?:married|divorced|engaged|a new)|divorced|adopted|"
    r"decided|agreed|settled|chose|chosen|picked|opted|dropped|adopted|became|turned (?:\d|vegan|vegetarian)|was born|were born|born|grew up|closed (?:the|our)|hired|"
    r"gezogen|umgezogen|gewechselt|umgestiegen|umgestellt|geheiratet|aufgehört|angefangen|umbenannt|entschieden|beschlossen\w*|geeinigt|abgemacht|vereinbart|"
    r"festgelegt|ausgemacht|verabredet|gekündigt|verschoben|verlegt|geändert|ersetzt|abgeschafft|eingestellt|geboren|geworden)"
)
_CHANGED = re.compile(rf"\b{CHANGES}\b")
_NO_FINITE = (
    r"(?!(?:is|are|am|be|has|have|must|should|will|shall|can|may|need|needs|to|gets?|never|only)\b)"
)
_PAST = Forms(
    rf"^(?!(?:i|we)(?:'ve| have) (?:got|been \w+ing .*\b(?:since|for (?:\d|years|many)))\b)(?:i|we|you|he|she|they|it|nobody|everyone|everybody|only \w+ \w+|this|that|(?:my|our|the|his|her|old|a|an) (?:{_NO_FINITE}[\w'-]+ ){{1,4}}?)(?:'ve| have| has| just| also| really| always| never| only| once| even| often| still| all)* ?\b{_PAST_EN}\b(?!['-])"
    rf"|^(?:at|in|on|during|back) [^,]{{3,30}}?,? (?:i|we|nobody|everyone|everybody|you|they|it) (?:always |never |only |just |all |still )?{_PAST_EN}\b|, (?:i|we|they|he|she) {_PAST_EN}\b(?! (?:a|the) rule)"
    r"|\b(?:used to|back then|in the past|as a (?:kid|child|student)|when i was|back in|in (?:his|her|my|our) (?:previous|old|last|former) |at my (?:old|last|previous)|"
    r"my (?:old|ex|former|previous)[ -](?:boss|job|team|company|colleague\w*|teacher|flat|house)|i'd never|you should(?:'ve| have)|should have|years ago|"
    r"früher|damals|seinerzeit|ehemals|als kind|als ich (?:klein|jung|kind|noch)|war mal|waren mal|mein\w* (?:alte|ex|frühere|damalige)\w*[ -]?(?:chef\w*|firma|job|team|kolleg\w*|lehrer\w*))\b"
    r"|\b(?:ich|wir|er|sie|es|man|das|der|die)\b (?:\w+ ){0,4}?(?:war|waren|hatte|hatten|wollte|wollten|musste|mussten|konnte|konnten|durfte|durften|sollten|dachte|dachten|wusste|kam|ging|gab's|wurde|wurden)\b"
    r"|\b(?:war|waren|hatte|hatten|musste|mussten|wollte|gab(?:'s| es)) (?:ich|wir|er|sie|es|man|mir|uns|bei)\b|\bgab's\b"
    r"|\b(?:habe?|haben|hat|bin|sind|ist|been|bist)\b(?: \S+){1,12}? (?!geht|geben|gern|gerne|gehören|gegen|genau|gerade|geöffnet|geschlossen|genug|gemeinsam|gestaltet|getrennt|geplant|gelegen|gesperrt|gemeint|geheim|gerät\w*|gespeichert|gehostet|verloren)(?:\w{0,4}ge[a-zäöüß]{2,}(?:t|en)|ver[a-zäöüß]{3,}(?:t|en)|be[a-zäöüß]{4,}t|er[a-zäöüß]{4,}t|\w+iert)[.! ]*$"
    r"|^(?!(?:i|we)(?:'ve| have) (?:got|been \w+ing .*\b(?:since|for (?:\d|years|many)))\b).*\b(?:have|has|'ve) (?:always |never |just |already |been |not |only )*(?:been|wondered|thought|seen|heard|understood|known|had|done|tried|made|got|found|noticed|forgotten)\b"
)
_PASSING = Forms(
    r"\b(?:today|tonight|tomorrow|yesterday|right now|just now|at the moment|currently|for now|for the moment|(?:just |only )?(?:this|that) (?:time|once|one|file|task|function|case|run|message|question|"
    r"answer|commit|branch|week|morning|afternoon|evening|session|chat|email|mail|letter|pr|weekend)(?!'?s? (?:meeting|call))|just (?:this )?once|(?<!at )(?<!more than )once(?! an?\b| per\b| every\b| you\b| \w+ (?:is|are)\b)|"
    r"temporar\w+|until (?:\w+day|tomorrow|tonight|noon|then)|next (?:week|month|step)|later today|in a (?:minute|moment|second|bit)|on my way|running late|be right back|brb|"
    r"heute|morgen(?! )|gestern|vorgestern|gerade|im moment|momentan|derzeit|vorerst|diesmal|dieses mal|ausnahmsweise|einmalig|nur (?:dieses|das) (?:eine )?mal|nur für (?:diese\w*|heute)|vorübergehend|jetzt gerade|gleich|bin gleich|diese woche|nächste woche|nachher|mal eben|für (?:diese\w*) (?:mail|nachricht|datei|brief|fall))\b"
    r"|\bfor this \w+(?: \w+)? only\b|\bonly for this\b|\bmorgen (?:früh|abend|mittag|ist|habe|haben|muss|kommt)\b"
)
_IDLE = Forms(
    r"^(?:never mind|nevermind|no (?:idea|worries|problem|rush|way|wonder|need(?! to (?:explain|add|use|write|ask|repeat|translate|include|mention|cite|say|put))|clue|hurry|thanks|doubt|luck|thank you)\b|nothing (?:works|helps|new|happen\w*|better|to|like)|"
    r"don't (?:worry|mention it|panic|bother|be|get me wrong)|always (?:the|a|an|my|his|her|something|nice|good|fun|wanted|wondered|thought|knew|loved|happy|glad|in|on|at|these|those|this|that|been|when|so|happens|someone)\b|"
    r"never (?:in|a|the|had|saw|heard|seen|thought|been|got|knew|understood|say|again|ever|gets?|got|too|really|mind|found|worked|went|would|could|did|was|is|he|she|they|have i|did i)\b|not bad|only (?:\w+ ){1,4}(?:failed|passed|left|more)|must be|must have|that(?:'s| is| was)\b(?! final| fixed)|it(?:'s| is| was| should| must| will)\b(?! (?:not )?(?:imperative|essential|important|crucial|vital|mandatory|necessary|forbidden|allowed|required|called|named|settled|decided|be|stay|remain|have to|has to|keep|run|work|compile))|"
    r"(?:that|it|this) (?:should|must|shouldn't|can't|might|could) |immer (?:das|der|die|das gleiche|dasselbe|dieselbe\w*|dies\w*|noch|wieder|wenn ich|ich|mehr|so|schön|gut|muss|ist|hat|kommt)\b|"
    r"nie (?:hätte|hat|war|ist|habe|wieder montag|gesehen|gehört|klappt|kommt|da)\b|nichts (?:geht|funktioniert|klappt|für ungut|zu danken|neues|los)|auf keinen fall (?:kommt|wird|ist|hat|schafft|kann)\b|"
    r"kein(?:e)? (?:ahnung|problem|thema|plan|stress|ding|sorge|wunder|bock|lust|zeit|eile)\b|nur noch (?:\w+ )?(?:stunde\w*|tage?|minute\w*|woche\w*)|das (?:habe ich|hab ich|ist|war|geht|kann|muss|soll|sollte|wird|hat|klingt|stimmt|passt)\b|"
    r"niemand hat|so langsam|passt schon|alles (?:gut|klar)|schon gut|wenn ich (?:nur|mal|reich)|oh (?:no|man|nein)|you should(?: have)? (?:see|hear|know)|long (?:day|week)|if it works|can't complain|i don't (?:mind|know|care)\b|don't (?:know|you|tell me|ask me (?:why|how)|forget to (?:breathe|eat|smile))|there (?:must|should|has to) be\b|das darf doch|da muss (?:ich|man)\b|es muss doch|muss (?:los|weg|jetzt|gleich)|immer (?:mit der ruhe|langsam|locker)|rules are|you can't (?:please|win|have)|i wonder\b|without (?:you|coffee|him|her) |ohne (?:dich|witz|scheiß|mist|kaffee|worte)\b|keine (?:sorge|angst)|need (?:coffee|a break|more sleep|sleep)|nothing (?:to see|much|else|special)|not (?:that i know|really|sure|yet|much)|nur (?:gut|so|mal so)\b|haven't (?:had|got|seen)|(?:no one|nobody|no-one|keiner|niemand|kein mensch)(?! (?:may|must|can|should|is (?:allowed|to)|but|except|outside|touches|edits|changes|pushes|merges|deploys|gets|sees|signs|sends|else|darf|soll|kann|fasst|ändert|bekommt|kriegt|schickt|außer|ohne)\b) |(?:if|wenn) (?:das|it|this|that) (?:klappt|works|goes)|(?:wenn|if) (?:du|you) (?:willst|magst|want|like)\b(?! me to)|bevor ich(?:'s| es)? (?:das )?vergesse|before i forget|immerhin|it (?:never|always) |that rule\b|die regel kenne|we should (?:grab|meet|catch|have) |say never|mach dir (?:keine|nichts))"
    rf"|\b{_I} (?:just |really |have |'ve |still |habe |always |immer )?(?:never|always|nie|noch nie|immer|ever) (?:really |quite |ganz |richtig )?(?:understood|understand|knew|know|got|get(?! to\b| up\b| my\b)|wondered|wonder|thought|think|forget|lose|end up|feel|hear|had|verstanden|verstehe|gewusst|wundere|vergesse|verliere|frage mich|denke)\b"
    r"|\b(?:drives?|driving|treibt) (?:me|mich)\b|\bworries?\b|\bnerves\b(?! of)|\bfeel(?:s|ing)? like\b|\bkeine ahnung\b|\bimmer wieder\b(?=.*\b(?:fehler|probleme?)\b)|^i think (?!i (?:like|prefer))|^(?:ich )?(?:glaube|denke|finde) (?:wir|ich|das|dass|mal)\b|\boverrated\b|,? (?:weird|crazy|strange|oddly|sadly|luckily|annoying|hilarious|verrückt|furchtbar|komisch|blöd|echt blöd|schlimm|schade|krass|naja|oder|klar|sigh|of course|natürlich|sag ich dir|sagt (?:er|sie)(?: immer)?|i guess|of course not|can you imagine|hence the \w+)[.! ]*$|\bsag ich dir\b|\bi guess\b|\bnie wieder (?:alkohol|montag)\b|^my \w+ (?:isn't|aren't|is not) allowed\b"
)


_PERSON = (
    r"(?:mother|father|mum|mom|dad|sister|brother|wife|husband|partner|girlfriend|boyfriend|kids?|children|sons?|daughters?|baby|phone|keys?|wallet|back|head|car|bike|glasses|grand(?:ma|pa|mother|father|son|daughter|parents)|"
    r"parents|aunt|uncle|cousin|niece|nephew|landlord|boss|manager|neighbou?rs?|friends?|flatmate|roommate|colleagues?|intern|teacher|doctor|cat|dog|train|bus|printer|weather|"
    r"competitors?|mutter|vater|mama|papa|schwester|bruder|frau|mann|freund\w*|kind(?:er)?|sohn|tochter|oma|opa|großeltern|eltern|tante|onkel|chef\w*|nachbar\w*|kolleg\w*|"
    r"lehrer\w*|arzt|ärztin|katze|hund|bahn|zug|drucker|wetter|verein|schule|kantine|schweiz|kneipe|kirche|mitbewohner\w*)"
)
_OWN_LIFE = Forms(  # what the speaker, relatives and strangers have to do, and how things use to be
    r"^i (?:(?:really|just|also|still|always|never|probably|only) )*(?:must|should|ought to|have to|had to|need to|may|can't(?! (?:stand|bear))|cannot(?! (?:stand|bear))|can(?!')|don't have to|mustn't)\b"
    r"(?! (?:see|approve|sign|confirm|check|review|agree|accept|allow|have (?:the|your|a|every|all|each)|be (?:asked|told|informed|able to)|stand|bear)\b)"
    r"|^ich (?:(?:wirklich|auch|immer|nie|nur|noch|ja|halt) )*(?:muss|darf|soll|sollte|kann|musste|durfte)\b(?! (?:es |das |alles |alle |jede\w* )?(?:erst |vorher |immer |zuerst )?(?:sehen|freigeben|prüfen|zustimmen|gefragt|drüber))"
    rf"|^(?:my|our|the|his|her|their|mein\w*|unser\w*|der|die|das|bei|in|im) (?:[\w'-]+ ){{0,2}}?{_PERSON}\b(?! must not| darf nicht erfahren)"
    r"|^(?:(?:my|our|the|mein\w*|unser\w*|der|die|das) )(?:[\w'-]+ ){1,3}?(?:is|are|ist|sind|has|hat|geht|kommt|läuft) (?:always|never|immer|nie) (?!to\b|zu\b|in\b|on\b|at\b|auf\b|im\b)\w+"
    r"|\b(?:always|never|immer|nie) (?:answers|stops|breaks|crashes|forgets|comes|arrives|listens|knows|loses|calls|works|kaputt|pünktlich|schuld|genug|recht)\b"
    r"|\b(?:you|he|she|they|we) must be (?:joking|kidding|crazy|mad)|^(?:i|we|you|they|he|she|it) must(?:'ve| have)\b|\bthere(?:'s| is| are) no \w+ (?:left|yet|here|today)\b|\bes gibt kein\w*\b"
    r"|\b(?:nothing|nichts) (?:works?|compiles?|helps?|makes sense|changed|happened|geht|klappt|funktioniert)\b|\b(?:i|we) can't (?:believe|wait|find|remember|sleep|stop|help|tell)\b"
    r"|\b(?:every time|whenever|each time|immer wenn|jedes mal,? wenn) (?:i|we|ich|wir) .*\b(?:crash\w*|fail\w*|break\w*|freez\w*|hang\w*|error\w*|stürzt|hängt|kaputt|fehler\w*|regne\w*|rains?)\b"
    r"|\bnie im leben\b|\bso ein (?:quatsch|mist|blödsinn|unsinn|zufall)\b|\bdoch nie\b|\bin my life\b|\bwas für ein\w*\b|^what a\b"
    r"|^(?:without|before|after|ohne|vor|nach) (?!(?:every|each|any|jede\w*|dem|der|das|the|asking|you)\b)[^,]{2,20}?,? (?:i|we)(?:'m|'ve|'re)? (?!want|need|expect|must|approve)\w+|^(?:ohne|vor|nach) \w+(?: \w+)? \w+(?:t|e|en) (?:ich|der|die|das|es|mir|er|sie)\b"
    r"|^(?:in|im|bei|beim|auf|at|on|during) (?:(?:der|dem|den|meiner|meinem|unserem|unserer|my|the|our|his|her) )?(?!(?:datenbank|ordner|code|repo\w*|datei\w*|projekt|text\w*|mail\w*|brief\w*|bericht|kommentar\w*|tabelle|skript|modul|test\w*|folder|files?|database|code)\b)[\w-]+(?: \w+)?,? (?:darf|dürfen|durfte\w*|muss|müssen|musste\w*|gilt|soll|kann|können|we|nobody|no one|you|they|everyone) (?:man|wir|ich|ja|jeder|keiner|niemand|auch|had|was|can't|have|must|were)\b"
    r"|^(?:i|ich) (?!(?:really |just |also |still |always |never |only |auch |nur |immer |nie |grundsätzlich )*(?:want|need|expect|prefer|like|love|hate|dislike|enjoy|insist|require|ask|demand|would|'d|won't|will not|don't (?:want|like|accept|allow|need|use)|do not|review|approve|decide|sign|must|should|can't|cannot|have|care|"
    r"find|will|möchte|brauche|erwarte|bevorzuge|mag|hasse|liebe|bestehe|verlange|hätte|bitte|wünsche|bin|finde|entscheide|gebe|prüfe|lege|muss|soll|darf|kann|lehne|dulde|akzeptiere|benutze|nutze|verwende|use|write|keep)\b)\w+"
    r"|^i have no\b|^ich brauche (?:erst |einen |jetzt |mal )"
    r"|\b(?:long|lang|away|entfernt)[.! ]*$"
)


_DESCRIBES = Forms(  # a word of obligation that describes
    r"^(?:if|when|wenn|falls|sobald|once|until|before|bevor) [^,]+, (?:then |dann )?(?:i|we|he|she|they|it|that|this|nobody|everyone)(?:'\w+)? (?!must|may|want|need|expect)"
    r"|^(?:wenn|falls|sobald|bevor) [^,]+, (?:dann )?\w+ (?:ich|er|sie|es|wir|man)\b(?! (?:bitte|nicht|nie|immer|erst))"
    r"|\b(?:is|are|was|were|'s|isn't|aren't|has|have|had|see|sees|saw|got|ist|sind|war|hat|haben|habe|gibt|gab)(?: \w+)? (?:no|kein\w*|nothing|nichts|none) (?!longer|more than|way to|business|place|right)\w+"
    r"|\b(?:is|are|'s|it's) not (?:a|an|in|on|by|before|after|until|that|so|really|very) |^(?:not|nicht) (?:a(?! (?:fan|single))|an|so|the|gut|schlecht|mein\w*|ganz|wirklich|schon)\b"
    r"|^(?:can't|cannot|couldn't|won't) (?!have|eat|drink|stand|do \w+days)|^(?:they|he|she) \w+|^(?:as long as|solange) [^,]*\b(?:i'm|i am|bin ich)\b|^(?:ob|whether) |^only (?:in|on|at|with|for) .* (?:does|do|did|is|would|can) |^you can (?:tell|see|imagine|bet|say that)\b|^don't get me\b|^must (?:dash|go|run|be|have|rush)\b|^so far\b|\bendlich (?:wieder|mal|frei)\b|\bfinally\b|^man (?:darf|muss|soll|kann) (?:in|im|auf|bei|beim|am) |\b(?:lässt|lassen|lets?|makes?|made|zwingt) (?:uns|mich|us|anyone|me (?!approve|see|check|sign|review|know))\b|^no \w+,? no \w+[.! ]*$|^ohne \w+ kein\w* \w+[.! ]*$|^(?:jeder|alle|man|wir|du)\b.*\bmal(?: wieder)?\b|\bwould be (?:nice|great|good|lovely) if (?:people|they|he|she|someone|it|i)\b|^if (?:that's|it's|you) (?:ok|okay|fine|alright|all right|like|don't mind|ask me)\b|^as long as (?:you're|it|that)\b|^until (?:next|then|later|soon)\b|^wenn man\b|^(?:wenn|falls|if) [^,]+, (?:ich|i|i'm) (?:bin|habe|kann|will|am|be)\b|^you (?:don't|never) (?:say|told|know)\b|^always look\b|^du (?:darfst|musst|solltest) (?:mir|mal|dir|den film|das buch)\b|^(?:all|every|each|no|some|the) [^,]{2,40}? (?:were|was) |^(?:each time|every time|whenever|immer wenn|jedes mal,? wenn) (?:i|we|ich|wir) (?!write|send|paste|ask|post|give|show|say|quote|share|schick|schreib|frag|zeig|sag)\w+|^(?:es|er|sie) soll(?:en)? |^(?:muss|kann|darf) (?:ja|man|doch|halt)\b|^da \w+ man\b|^man (?!darf|muss|soll|kann|sollte)\w+|^every cloud\b|^(?:alle|jeder) (?:reden|sagen|wissen|kennt|weiß|hat|will|meine)\b|^just wait\b|^stop it\b|^hope(?:fully)? |^you never know\b|^(?:bis|see you) (?:morgen|später|dann|bald|tomorrow|later|soon)\b|^strictly speaking\b|\bman darf (?:ja|doch|wohl)\b|^ein\w* gute\w* \w+ \w+t (?:immer|nie)\b|^(?:wenn|falls) [^,]{3,40}(?:t|en) (?:ich|der|die|das|er|es|wir)\b|^we (?:have to|need to|must|should) (?:leave|go|talk|wait|hurry|meet|catch)\b|^let's (?:have|see (?!to it)|go (?!with)|take a|grab|meet|talk|wait|hope|not forget to)\b"
    r"|\b(?:everything|everyone|everybody|alles|alle) (?:is|are|was|works|looks|seems|ist|sind|war|geht|läuft|klappt|knows|kennt|weiß|thinks|loves)\b|\ba treat\b|\bbus stop\b|\b(?:won't|doesn't|will not|nicht) stop\b"
    r"|^(?:fun fact|rule of thumb|faustregel|did you know|wusstest du|the (?:thing|problem|question|point|good news|bad news|funny thing) is|das (?:problem|lustige|gute|schlimme) ist)\b"
    r"|\b(?:i|we) (?:spent|spend) (?:all|the|every)|\bkills? me\b|\bkilling me\b|\bkeeps (?:\w+ing|on)\b|\bstill (?:not|no|nothing)\b|\bimmer noch\b|\bnoch (?:nicht|nie|kein\w*|nichts)\b|\bnot yet\b|\bno one ever\b|\bas always(?=[,.!]|$)|\bwie immer\b|\bas usual\b"
    r"|\b(?:someone|somebody|jemand|anyone) (?:must|should|has to|muss|sollte)\b|\b(?:they|people|die leute|die|sie) (?:must|should|have to|never|always|müssen|sollten|wollen|dürfen) (?:really |mal |doch )?(?:be|have|learn|know|think|denken|wissen|lernen|haben|sein)\b"
    r"|\b(?:weather|wetter|traffic|stau|weekend|wochenende|vacation|urlaub|ferien|movie|film|song|dream|geburtstag|birthday|lunch|dinner|mittagessen|kaffee|coffee|bier|beer|game last|spiel gestern)\b(?=.*\b(?:never|always|must|nie|immer|muss|no|kein\w*|only|nur|without|ohne|until|bis)\b)(?!.*\b(?:please|bitte|don't|must not)\b)"
)
_DESCRIBED = re.compile(
    r"^(?!.*\b(?:may|must|should|shall|can|darf|muss|soll)\b).*\b(?:has|have|had|hat|haben|hatte|is|ist|costs?|takes?|kostet|dauert|weighs|wiegt) (?:\w+ )?(?:at least|at most|mindestens|höchstens|(?:over|under|up to|über|unter) \S*\d)"
)


_ASKS = Forms(
    r"^(?:what|why|how(?! about never)|where|who|which|whose)\b(?!ever)(?![^,]*, )(?:'s)? (?!a mess)|^(?:what|how|why) (?:must|should|can|do|does|is|are)\b"
    r"|^(?!(?:can|could|would|will) you .*\b(?:from now on|in (?:the )?future|going forward)\b)(?:do|does|did|is|are|am|was|were|isn't|aren't|don't you|doesn't|should|could|would|can|may|will|have|has|shall|must) (?:i|you|we|he|she|it|they|there|the|this|that|these|my|your|our|any\w*|people)\b(?![^,]*,(?! (?:please|ok|right)))"
    r"|^(?:was|warum|wieso|weshalb|wie(?! gesagt)|wo|wann|wer|welche\w*|wessen|wozu) (?!(?:\w+ ){0,4}\w+, )"
    r"|^(?!(?:kannst|könntest|würdest) du .*\b(?:ab jetzt|ab sofort|künftig|in zukunft|immer)\b)(?:darf|dürfen|dürfte|muss|müssen|soll|sollen|sollte|kann|kannst|können|könntest|könnte|ist|sind|hat|hast|habt|haben|weißt|geht|gibt|wird|willst|magst) (?:ich|du|wir|man|das|der|die|es|er|sie|ihr|jemand|eigentlich|denn|da|hier)\b(?![^,]*, )"
)
_TASKS = Forms(  # a request for one piece of work
    r"^(?:(?:please|bitte|can you|could you|kannst du) )*(?:give|show|list|find|search|look up|tell|explain(?! (?:things|everything|concepts|stuff|terms))|compare|convert|summari[sz]e|translate|draw|plan|create|generate|draft|sort|count|"
    r"check|write (?:me )?(?:an?|the|some|two|three|\d+)|rewrite|make (?:it|the|this|that|me|an?)|add (?:an?|the|this|some|two|three)|fix|delete (?:the|this|line)|rename (?:the|this)|run the|open|send|"
    r"zeig\w*|gib|such\w*|finde?|prüf\w*|mache? (?:den|die|das|mir|ein\w*|es|mal|aus)|schreib\w* (?:mir )?(?:ein\w*|mal|den|die|das)|erstell\w*|liste?|erklär\w*|übersetz\w*|füg\w*|lösch\w* (?:die|den|das)|"
    r"fass\w* (?!dich)|rechne? .{1,40} aus|sortier\w*|vergleich\w*|schick\w*|plan\w*|nenn\w* (?:mir)|erzähl\w*)\b"
)
_KEEPS = re.compile(
    r"(?<!that )(?<!which )(?<!who )(?<!die )(?<!der )(?<!das )\b(?:always|never|whenever|every ?time|each time|before (?!(?:lunch|noon|the weekend))|after|unless|until|without|if (?!the \w+ (?:pass|work))|when|from now on|no more|nothing|not|only (?:if|when|after)|"
    r"immer|nie|niemals|bevor|ohne|jedes mal|jede\w*|erst|nicht|kein\w*|ab jetzt|ab sofort|künftig|nur (?:wenn|nach|mit)|grundsätzlich|each|every|by hand|ahead of|rather than|instead)\b"
)


class _Said(NamedTuple):
    """A sentence as typed, in plain words, and those without its lead."""

    typed: str
    text: str
    rest: str


_READINGS: tuple[tuple[Talk, Callable[[_Said], object]], ...] = (
    ("ironic", lambda said: _IRONIC.search(said.text)),
    ("ironic", lambda said: _SHOUTED.search(said.typed) and not said.typed.isupper()),
    ("supposed", lambda said: _SUPPOSED.search(said.rest)),
    ("reported", lambda said: _REPORTED.search(said.rest) or _NAMED.search(said.typed)),
    ("past", lambda said: _PAST.search(said.rest) and not _CHANGED.search(said.rest)),
    ("idle", lambda said: _SOBS.match(said.text)),
    ("idle", lambda said: _IDLE.search(said.rest) or _IDLE.search(said.text)),
    ("own", lambda said: _OWN_LIFE.search(said.rest)),
    ("idle", lambda said: _DESCRIBES.search(said.rest) or _DESCRIBED.search(said.rest)),
    ("task", lambda said: _ASKS.search(said.rest)),
    ("task", lambda said: _TASKS.search(said.text) and not _KEEPS.search(said.text)),
    ("passing", lambda said: _PASSING.search(said.rest)),
)


@lru_cache(maxsize=8_192)
def find_talk(sentence: str) -> Talk | None:
    """Return why a sentence neither orders nor states something that lasts; None if nothing says so."""
    text = plain(sentence)
    said = _Said(sentence, text, without_lead(text))
    return next((talk for talk, is_so in _READINGS if is_so(said)), None)


def is_passing(sentence: str) -> bool:
    """True if a sentence is about one occasion or the present moment."""
    return _PASSING.search(without_lead(plain(sentence)))
