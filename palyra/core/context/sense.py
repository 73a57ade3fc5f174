"""Sense: what a sentence of a person says that later conversations can use, by its form.

    order       "remember that …", "from now on …": an honest order to keep or to do it always
    instruction what the assistant is to do in general: "always …", "stop adding …", "duz mich"
    taste       what the person prefers
    decision    what was decided
    change      what is no longer as it was: moved, renamed, switched, no longer
    own         a lasting fact about the person, the people and things of the person
    definite    a fact about a thing that both know: "the staging database listens on port 6432"
    noted       anything else that the person orders to remember

The forms are read from plain words (`core.context.speech`): who the subject is, whether its verb is a
present tense of a state or a habit, and whether the object is general.  A single request names *the*
thing in front of it; an instruction that lasts names a kind of things or says that it lasts.
"""

import re
from collections.abc import Callable
from typing import Literal, NamedTuple

from palyra.core.context.speech import CHANGES, Forms, plain, without_lead

Sense = Literal["instruction", "taste", "decision", "change", "own", "definite", "noted"]

_ADV = (
    r"(?:(?:really|just|also|now|still|usually|normally|generally|mostly|mainly|always|never|only|often|sometimes|actually|basically|definitely|"
    r"absolutely|honestly|already|rarely|hardly|strictly|simply|much|strongly|kind of|sort of|do|very|all|both|ja|auch|immer|nie|niemals|meist|meistens|eigentlich|"
    r"jetzt|noch|schon|nur|grundsätzlich|normalerweise|gerne?|halt|eben|übrigens|generell|stets|total|echt|wirklich|sehr|überhaupt|selbst|leider|prinzipiell|tatsächlich|von beruf|seit \w+(?: \w+)?),? )*"
)


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- orders ----------------------------------------------------------------------------------------

_NOTE = (
    r"(?:remember|note|keep in mind|bear in mind|don't forget|memori[sz]e|make a (?:mental )?note|save (?:this|that)|for (?:future reference|the record|next time|the future)|"
    r"merke? (?:dir|es dir|bitte)|merken|denke? (?:daran|dran)|beachte|vergiss nicht|behalte?|notier\w*|speicher\w*|mach\w* dir (?:bitte )?(?:eine?n? |ne )?notiz)"
)
_POLITE = r"(?:(?:please|bitte|ok(?:ay)?|hi|hey|hello|hallo|also|and|und|oh|well|btw|by the way|so|fyi|übrigens|wichtig|important|noch was|one (?:more )?thing|could you|can you|kannst du|würdest du)\b[,:.!]* )*"
_ORDER = re.compile(
    rf"^{_POLITE}{_NOTE}\b(?!,? (?:when|how|the (?:time|day|days|old|good|first|last)|last|what|why|where|who|me\b(?! as)|him|her|us|them|it\b|als|wie|was|to (?!always|never|use|write|answer|keep|call|avoid|put|leave|include|not)))"
    r"|(?:,| and| und|[.;]) (?:please |bitte )?(?:(?:remember|note|memori[sz]e|save) (?:that|this|it)|keep (?:that|this|it) in mind|don't forget (?:that|this|it)|don't forget|merke? dir das|denke? (?:daran|dran)|bitte merken|vergiss das nicht)(?:,? (?:please|bitte|ok))?[.! ]*$"
    r"|\bso (?:please )?keep (?:that|this) in mind\b"
)
LASTING_ORDER = (
    r"(?:from (?:here|now|today|this point) on(?:wards?)?|going forward|henceforth|in (?:the )?future|for the future|until further notice|"
    r"ab (?:jetzt|sofort|heute|nun|hier)|von (?:jetzt|nun|heute) an|künftig|zukünftig|in zukunft|für die zukunft|bis auf weiteres|fortan)"
)
_LASTS_STRONGLY = re.compile(rf"\b{LASTING_ORDER}\b")
_LASTS = re.compile(
    rf"\b(?:{LASTING_ORDER}|always|never|ever|by default|every ?time|each time|whenever|any ?more|no longer|in general|generally|as a rule|at all times|throughout|everywhere|permanently|"
    r"without exception|no exceptions|(?:every|each) (?!other|one)\w+|(?:all|any) (?:my|our|the|of (?:my|our)|new)? ?\w+s\b|anything you|everything you|in (?:your|all|any|every|my) (?:\w+ )?(?:answers?|repl(?:y|ies)|messages?|responses?|texts?|code|files?|mails?|emails?|letters?|reports?)|"
    r"when(?:ever)? (?:you|i|we) \w+|if (?:you|i) (?:ask|write|send|paste|quote|translate|answer|are (?:unsure|not sure))|with me|for me|for (?:this|our|the) (?:project|repo(?:sitory)?|code ?base|team|book|novel|shop|client)|again(?=[.! ]*$)|"
    r"immer|nie(?:mals)?|nie (?:mehr|wieder)|grundsätzlich|generell|standardmäßig|prinzipiell|jedes ?mal|jede[rsnm]? \w+|stets|dauerhaft|nicht mehr|kein\w* (?:\w+ )?mehr|überall|in allen|bei allen|alle (?:meine|unsere)?|in deinen|in meinen|"
    r"wenn (?:du|ich) (?:\w+ )*\w+|sobald|bei mir|in diesem (?:projekt|repo|buch)|für mich|ausnahmslos|durchgehend)\b"
)

# --- instructions ----------------------------------------------------------------------------------

_NO_VERB = re.compile(  # what cannot be a verb in the imperative
    r"^(?:i|we|you|he|she|it|they|this|that|these|those|there|here|the|an?|my|our|your|his|her|their|its|some|many|most|much|no one|nobody|everyone|someone|what|which|who|when|where|why|how|if|because|since|although|while|in|on|at|of|to|"
    r"from|with|by|as|is|are|was|were|am|has|had|does|did|can|could|would|should|may|might|must|will|shall|not|yes|ok|lol|too|very|so|such|same|nothing|one|two|three|\d\S*|\w+(?<!be|ne|le)ed|(?!bring|sing|ring|ping|string|swing|spring)\w+ing|\w{4,}ly|\w+'\w+|"
    r"ich|du|er|sie|es|wir|ihr|man|das|der|die|den|dem|ein\w*|mein\w*|unser\w*|dein\w*|sein\w*|ist|sind|war|waren|hat|habe|haben|wird|kann|darf|muss|soll|wenn|falls|weil|dass|wie|was|wer|wo|und|oder|aber|auch|nur|noch|schon|heute|gestern|hier|da|dort|so|"
    r"schön|gut|typisch|dasselbe|wieder|diese\w*|jene\w*|best|better|worst|good|bad|nice|fun|happy|great|late|early|weird|strange|ever|again|mind|say)\b"
)
_NOMINAL = re.compile(
    r"^(?:no (?!idea|problem|worries|rush|thanks|way|one|need|clue|hurry|wonder|doubt|matter|luck|wait)\w+|kein\w* (?!ahnung|problem|thema|plan|stress|sorge|wunder|bock|lust|zeit|eile|angst)\w+|only \w+|nur \w+|ohne \w+|without \w+|all \w+|alle \w+|jede\w* \w+|every \w+|each \w+)"
)
_NOMINAL_PLEASE = re.compile(  # `comments in the code in German, please`
    r"^(?!(?:i|we|you|ich|wir|du|mach\w*|gib|zeig\w*|schick\w*|hilf|komm(?:t|en)?|nimm|warte?|sei|can|could|kannst)\b)\w{4,}(?: \w+){0,5},? (?:bitte |please )?(?:auf|in|mit|ohne|als|nicht|immer|per|as|with|without|only|nur) \w+(?: \w+){0,3}(?:,? (?:please|bitte))?[.! ]*$|^\w{4,} bitte (?:nicht|nie|immer|weglassen|vermeiden)\b"
)
_SPECIFIC = re.compile(  # an object that is in front of the two
    r"\b(?:this|that|these|those|it|here|above|below|line \d+|the (?:first|second|third|last|next|other|new|old|same|following) \w+|the (?:bug|error|typo|test|build|button|paragraph|sentence|title|heading|link|image|picture|list|table|chart|draft|letter|mail|email|invitation|file|function|variable|answer)\b(?! format)|"
    r"dies\w*|den (?:absatz|satz|text|fehler)|die (?:zeile|überschrift|mail|liste|tabelle|datei|einladung)|das (?:bild|dokument)|hier|oben|unten|zeile \d+|mal eben|mal kurz|kurz|mal (?=\w+$)|im \w+ absatz)\b"
)
_STYLE = re.compile(  # instructions about manner, which last unless they name one thing
    r"^(?:you can |you may |you |can you |could you |would you |feel free to |du kannst |du darfst |kannst du |könntest du |kannst |gern |gerne |ruhig |please |bitte )*(?:"
    r"(?:use|avoid|prefer|write|answer|reply|respond|speak|talk|format|quote|cite|express|spell|explain (?:things|everything|concepts|stuff|terms)|stick to|leave out|skip|omit|spare me|go easy on|limit|treat|drop|assume|address me|refer to|sign|keep (?:everything|all|using|doing|it|answers|replies|sentences|explanations|things|your|my|the|code|functions))\b"
    r"|call me (?!later|back|tomorrow|when|if|at|on|maybe|crazy|old|a |an |tonight|in |asap|today|please)\S+|(?:don't|do not|never) (?:ever )?(?:use|add|write|put|include|call|suggest|recommend|mention|explain|apologi[sz]e|ask|send|give|assume|repeat|start|end|sign|propose|offer|show me|tell me|say|round|abbreviate|translate|touch|change|address|begin|make)\b"
    r"|stop (?!worrying|kidding|joking|being|laughing|crying|whining|bothering)\w+ing\b|(?:no|cut the|less|fewer|more) (?:more )?\w+(?: \w+){0,4},? (?:please|in|for|when|with)|no more \w+|quit \w+ing\b|no need to \w+|(?:don't|do not) (?:have|need) to \w+"
    r"|(?:bitte )?(?:duz\w*|siez\w*|nenne?|sag (?:einfach |ruhig |bitte )*(?:du|sie)|sag|sprich|antworte?|schreibe?|benutze?|nutze?|verwende|vermeide|verzichte|halte? dich|fasse? dich|formuliere?|hör auf|lass (?:die|das|den|bitte)|spar dir|rechne|red\w*|erklär\w*|verwend|nimm|setz\w*|gib|zeig|behandle) "
    r"|(?:wir (?:können|sollten) uns|mich|du kannst mich|kannst mich|duzen wir|bleiben wir beim) .*\b(?:duzen|du|siezen|sie|nennen)\b|(?:bitte )?keine?n? \w+(?: \w+){0,4}(?:,? bitte| mehr| in | bei )|bitte keine?n? "
    r")"
)
_ONE_OFF_DE = re.compile(
    r"^(?:bitte )?(?:gib|zeig|nimm|schreibe?|erklär\w*|setz\w*|nenne?|sag|rechne|antworte?|red\w*|benutze?|nutze?|verwende) (?:mir |uns |mal |doch |bitte |ihm |ihr )*(?:ein(?:e[nmrs]?)?|den|die|das|dem|der|für (?:die|den|das)|was|mal|etwas|alle|drei|zwei|\d+|noch)\b"
)
_WANTS_YOU = re.compile(
    r"^(?:i|we)(?:'d| would)? (?:really |just )?(?:want|need|like|expect|prefer|love) (?:you to|it if you|all|every|each|any|my|your (?:answers|replies))\b|^(?:ich|wir) (?:will|möchte|wollen|möchten|hätte gern|erwarte),? (?:\w+ )?(?:dass du|alle|jede\w*|immer|nie|keine?n?|grundsätzlich)\b"
    r"|^you (?:should|must|can|may|need to|have to|don't need to|don't have to|are to) |^du (?:sollst|musst|darfst|kannst|brauchst) "
)
_SHOULD = re.compile(
    r"^(?:for me,? |bei mir |for my \w+,? )?(?!i\b|we\b|you\b|he\b|she\b|they\b|it\b|this\b|that\b|there\b|the \w+ should be (?:fine|ok|here|done|ready))[\w' -]{2,40}\b(?:should|must|have to|need to|are to|sollten|sollen|müssen|dürfen|gehören) (?:always |never |only |not |nie |immer |nur |nicht )*(?:be |\w+)"
)

# --- tastes ----------------------------------------------------------------------------------------

_DEICTIC = r"(?!(?:it|this|that|these|those|what|how|when it|where|your|you|him|her|them|the (?:idea|way|look|sound|first|second|third|last|other|one|new|old|answer|result|option|part|fact|example)|to (?:say|add|see|hear|know|ask|point|think|mention|be honest)|mondays?)\b)"
_TASTE = Forms(
    rf"^(?:i think |i guess |i find (?:that )?)?(?:i|we)(?:'d| would)? {_ADV}(?:prefer|like|love|hate|dislike|enjoy|adore|detest|loathe|favou?r|appreciate)\b {_DEICTIC}"
    rf"|^(?:i|we)(?:'d| would) (?:much )?(?:rather|sooner) (?!be\b|not be|go\b|die\b)|^(?:i|we) {_ADV}(?:can't|cannot|can not) (?:stand|bear|abide) {_DEICTIC}|^i'?m {_ADV}(?:not )?(?:a (?:big |huge |great )?)?(?:fan of|fond of|keen on|into) {_DEICTIC}|^not a fan of "
    rf"|^(?:i|we) (?:don't|do not|never) (?:really |ever |particularly )?(?:like|enjoy|care for|want|appreciate) {_DEICTIC}(?!to\b|a\b|an\b|any help|the\b)"
    r"|\bmy (?:favou?rite|preferred|preference)\b|\b(?:works?|is|are|reads?) (?:easier|better|best|fine|clearer|enough) for me\b|\bsuits? me\b|\b(?:annoys?|bothers?|irritates?|confuses?) me (?:when|if)|\bgets? on my nerves\b|\beasier for me\b|\bi find .* (?:easier|better|clearer|more readable|annoying|confusing|useful)\b"
    r"|^(?:i|we) want (?!to\b|a\b|an\b|the\b|this\b|that\b|it\b|you\b|some\b|two\b|three\b|my\b|him\b|her\b|them\b|another\b|more\b|one\b)\w+ (?:\w+ )?(?:in|as|without|with|only|over|instead|throughout|for)\b"
    r"|^(?:ich|wir) (?!\w+ (?:dich|dir|dein))"
    + _ADV
    + r"(?:mag|mögen|bevorzug\w*|präferier\w*|liebe|hasse|verabscheue|schätze)\b (?!es\b|das\b(?! \w+[ -])|dies\w*|wie\b|wenn\b|dich|deine?\b)"
    r"|\b(?:mag|bevorzuge|hasse|liebe) ich\b|\b(?:will|möchte|brauche|trinke?|esse?|lese?|nehme?|schreibe?) ich (?:immer|lieber|nur|nie|grundsätzlich|am liebsten)\b|\bist mir (?:lieber|wichtig|zu )|\b(?:mir|uns) (?:ist|sind|reicht|reichen|gefällt|gefallen|liegt|liegen|genügt|genügen) (?!das\b|es\b|kalt|warm|schlecht|langweilig|egal|klar|aufgefallen)"
    r"|\b(?:reicht|reichen|genügt|genügen|gefällt|gefallen) mir\b(?!.*\b(?:heute|jetzt)\b)|\bam liebsten\b|\blieblings\w+|\b(?:stört|stören|nervt|nerven) mich\b|\bkann ich nicht (?:leiden|ausstehen|ab)\b|\bnicht leiden\b|\bhalte (?:ich )?(?:wenig|viel|nichts) von\b|\b(?:ich )?stehe? (?:ich )?auf \w+"
    r"|^ich (?:\w+ )?(?:finde|find) .* (?:besser|angenehmer|übersichtlicher|praktischer|schöner|lesbarer|leichter)\b|^(?:ich|wir) (?:\w+ )?(?:\w+ )?lieber \w+|\blieber \w+(?: \w+){0,3} (?:als|statt)\b|^(?:ich|wir) (?:will|möchte|wollen|möchten|brauche|hätte gern\w*) (?:\w+ )?(?:keine?n?|nie|immer|grundsätzlich|nur|nichts)\b"
)

# --- decisions and changes -------------------------------------------------------------------------

_DECISION = Forms(
    r"\b\w+ it is(?: then)?[.! ]*$|^(?:abgemacht|ausgemacht|fest steht|es bleibt dabei|agreed|settled|verdict|done deal|ergebnis|fazit|final answer)\b[,:]|^(?:dann |also |ok )*nehmen wir\b|^es wird (?:die|der|das|ein\w*) |^(?:the|our) plan is (?:to|now)\b|^(?:i|we)'ll be (?:using|going with)\b|^(?:our |final |the |new )?(?:decision|decided|beschluss|entscheidung|beschlossene sache|beschlossen|resolved)\b(?! (?:yet|noch|von|of)\b)"
    rf"|\b(?:we|i|wir|ich)(?:'ve| have|'re| are)? {_ADV}(?:decided|agreed|settled|chosen|chose|opted|voted|picked|going with|go with|went with|sticking with|stick with|staying with|stay with|dropping|dropped|switching to|standardi[sz]\w+ on|moving to|moving off|scrapping|abandoning)\b(?! (?:to (?:go|order|meet|eat|watch|leave|stay (?:home|in)|wait)|yet|about it))"
    r"|^we(?:'ll| will| shall) (?:use|go with|stick|keep|take|build|drop|stay|switch|store|write|deploy|host|ship|adopt)\b|^let's (?:use|go with|stick|keep|settle|agree|standardi[sz]e|adopt|drop|stay with)\b(?! (?:it|this|that|look))|\b(?:we've settled it|it's (?:settled|decided|official)|that's (?:final|settled|decided)|final decision)\b"
    r"|\b(?:haben|habe) (?:uns |mich |wir uns |wir )?.*\b(?:entschieden|geeinigt|beschlossen|abgemacht|vereinbart|festgelegt|ausgemacht|verständigt)\b|\b(?:wir|uns) (?:nehmen|bleiben bei|setzen (?:künftig |jetzt )?auf|steigen (?:\w+ )?um|machen das (?:künftig )?(?:mit|in)|einigen uns)\b|^es bleibt (?:bei|dabei)\b|^(?:nehmen|bleiben|setzen) wir\b|\bsteht (?:jetzt )?fest\b|\bfür \w+ entschieden\b|\bwird .{2,60}(?:abgeschaltet|abgelöst|ersetzt|eingestellt|umgestellt)\b"
    r"|^(?:ok |so |for (?:this|our|the) \w+,? )*we use \S+(?:,? (?:not|instead of|rather than)) "
)
_CHANGE = Forms(
    rf"\b(?:i|we|ich|wir|my|our|mein\w*|unser\w*|the|der|die|das|uns|bei uns)\b.{{0,60}}?\b(?:no longer|any ?more|nicht mehr|kein\w* \w+ mehr|(?:is|are|lives?|runs?|heißt?|ist|sind|wohnt?e?|läuft|arbeite) (?:now|jetzt)|now (?:lives?|runs?|is|uses?|called)|{CHANGES})\b"
    rf"|^(?:habe |bin |wurde )?(?:just |gerade |finally |endlich )?(?:moved|switched|changed|renamed|got (?:married|divorced)|retired|quit|started|joined|bin .{{2,40}}(?:gezogen|umgezogen|gewechselt|geworden)|habe .{{2,40}}(?:geheiratet|aufgehört|angefangen|gewechselt|gekündigt))\b"
    r"|^(?:we|i)(?:'re|'m| are| am) (?:moving|switching|migrating|changing) (?!on\b|along\b)\w+.* (?:to|from|into|in) \w+"
    r"|^\S+(?: \S+){0,3} (?:moved|has moved|was renamed|is now called|heißt jetzt|ist jetzt|is now|wurde (?:umbenannt|verschoben|verlegt))\b|\bleft (?:the (?:team|company)|us)\b(?= (?:in|last))"
)

# --- facts -----------------------------------------------------------------------------------------

_STATES_ONCE = (  # states that pass
    r"(?:tired|hungry|thirsty|sick|ill|busy|happy|sad|excited|stuck|lost|confused|sorry|done|ready|back|late|here|there|out|off|away|home|sure|afraid|glad|bored|stressed|worried|fine|ok(?:ay)?|good|well|great|cold|hot|wet|drunk|awake|asleep|online|offline|"
    r"curious|wondering|thinking|trying|looking|going|coming|getting|having|running|sitting|waiting|about to|not (?:sure|feeling|here|in the mood)|so|too|pretty (?:sure|tired)|at the|on the (?:train|bus|phone|way|road)|in (?:a|the) (?:hurry|meeting|mood|car|middle|bath|office now)|on my way|a (?:bit|little|mess|wreck|moron|idiot|genius)|an idiot|just|still|all|impressed|amazed|surprised|"
    r"disappointed|annoyed|angry|mad|proud|grateful|thankful|blown|done with|over it|kidding|joking|serious|right|wrong|full|exhausted|new (?:here|to this)|using the|your|"
    r"müde|krank|fertig|gleich|bereit|sicher|froh|traurig|zurück|da|weg|unterwegs|gespannt|dran|wieder|nicht (?:sicher|da|so)|gerade|grad|echt|total|begeistert|genervt|enttäuscht|überrascht|neugierig|dabei|hier|beim|am (?:handy|telefon|überlegen)|im (?:zug|auto|meeting|büro jetzt|stress)|auf dem weg|raus|gestresst|kaputt|satt|hungrig|wach|schon|ganz|mal|noch|immer noch|so|zu|am)"
)
_BAD_HAVE = (
    r"(?:(?:a|an|another|some|no|the|any|two|three|ein\w*|kein\w*|noch|mal|die|das|den)? ?(?:\w+ )?(?:questions?|problems?|issues?|errors?|bugs?|ideas?|feeling|headache|cold|meetings?|calls?|appointment|deadline|doubts?|request|favou?r|plan|hunch|minute|moment|second|time|exam|interview|test|clue|look|chance|point|options?|task|fever|hangover|date|flight|tickets?|list|file|table|text|draft|"
    r"paragraph|sentence|function|fun|luck|nothing|something|to|been|had|got to|just|already|never|always|frage\w*|problem\w*|fehler\w*|idee\w*|gefühl|\w*schmerzen|\w*weh|termin\w*|besprechung|moment|zeit|hunger|durst|lust|angst|glück|pech|ahnung|bock|keine?n? (?:ahnung|lust|zeit|plan|bock)|recht|vergessen|schon|gerade|mal|es|das|dich|dir|mich|mir|was|etwas|heute|gestern|jetzt)\b)"
)
_MOMENT_VERBS_EN = _words(
    "think guess believe hope wonder mean see understand know feel wish suppose agree apologize apologise promise need want get have must can can't cannot "
    "could couldn't would wouldn't should will won't may might shall remember forget say swear bet doubt thank assume suggest propose notice love like hate "
    "prefer dislike enjoy just really actually also do don't did didn't does am are was were is had 'm 're 've 'd 'll got went came took saw made gave said "
    "told thought knew felt found left lost met ran sat spoke stood taught wrote broke brought bought built caught drank drove ate fell flew forgot grew "
    "heard held kept led let paid rode rang sang slept sold sent shook showed spent swam threw understood woke won wore began became chose appreciate "
    "imagine figure gotta gonna wanna tried try try! notice recommend admit miss look seem appear decide decided care mind come go lol haha and or to in on "
    "the a it that this there hear notice regret struggle ask beg dare finally have not never always only still usually now all both either then but so what "
    "how if when who"
)
_MOMENT_VERBS_DE = _words(
    "denke glaube hoffe meine finde weiß verstehe sehe frage brauche muss kann will möchte würde fühle fühl freue wünsche vermute schätze gehe geh komme "
    "sitze stehe warte bin habe hab hatte war dachte wollte konnte musste sollte soll darf sag sage versuche suche schaue guck gucke kenne merke schlage "
    "melde danke bitte entschuldige verzeihe überlege vergesse kapiere check checke mag liebe hasse bevorzuge werde wurde hätte wäre könnte sollte dürfte "
    "und oder nicht ja auch mich dich das die der es ihn ihr uns euch mir dir wir ich er sie man mal so doch noch schon nur immer nie jetzt dann da hier was "
    "wie wenn ob dass eigentlich übrigens gerade heute gestern morgen echt total wirklich mache mach tu tue fange fang bekomme krieg kriege nehme nehm lass "
    "lasse hören höre bleibe bleib fahre fahr laufe renne haben sind waren wollen können müssen sollen dürfen werden würden wissen denken glauben hoffen "
    "finden gehen kommen brauchen"
)
_NP = r"(?:(?!(?:is|are|was|were|has|had|should|must|can|will|who|which|that|said|says|ist|sind|war|hat|muss|kann|wird)\b)[\w'&/.-]+ ){1,5}?"
_VERB_S = (
    r"(?:is|are|has|have|lives?|works?|runs?|uses?|starts?|ends?|begins?|opens?|closes?|needs?|requires?|listens?|belongs?|expires?|rotates?|costs?|speaks?|plays?|studies|teaches|goes|go|comes? from|means|stands for|stores?|hosts?|deploys?|targets?|supports?|handles?|owns?|maintains?|"
    r"makes?|sells?|ships?|covers?|contains?|consists? of|depends? on|eats?|drinks?|sleeps?|arrives every|meets?|reports? to|lasts?|takes?|allows?|accepts?|serves?|produces?|publishes|pays?|gets? (?:paid|delivered|up)|counts?|sits|resides|moves? to|turns? \d+|"
    r"ist|sind|hat|haben|heißt|heißen|läuft|laufen|liegt|liegen|steht|stehen|nutzt|nutzen|verwendet|verwenden|wohnt|wohnen|arbeitet|arbeiten|braucht|brauchen|gehört|gehören|kostet|kosten|beginnt|beginnen|endet|öffnet|schließt|spricht|spielt|studiert|lernt|isst|trinkt|macht|machen|betreut|verkauft|"
    r"liefert|unterstützt|speichert|lauscht|besteht aus|dauert|geht|gehen|kommt|kommen|zieht|kümmert sich|leitet|übernimmt|erledigt|prüft|verträgt|schreibt)"
)
_TRANSIENT = Forms(
    rf"^[^,;]*\b(?:is|are|'s|'re|ist|sind) (?:{_STATES_ONCE}|the (?:best|worst)|awesome|awful|terrible|amazing|horrible|cool|nice|boring|awful|weird|crazy|der beste|die beste|das beste|super|toll|schlimm|schlecht|gut|furchtbar|schrecklich|un(?!verh|befr)\w+|zu \w+|lang|kalt|langweilig|komisch|(?!called|named|based|located|allergic)\w+ing\b|broken|down|red|green|failing|slow|empty|blank|dead|gone|killing|on fire|full|crashing|missing|kaputt|leer|voll|langsam|rot|weg)\b(?! (?:to|for) (?:nuts|peanuts|\w+ allerg))"
    r"|^(?:my|the|our|mein\w*|der|die|das) (?:[\w-]+ ){1,3}?(?:shows?|returns?|displays?|prints?|gives?|throws?|says?|zeigt|gibt|sagt)\b|^my (?:friend|neighbou?r|colleague|boss|client|customer|cousin|uncle|aunt|landlord|brother|sister)'s (?!name)|\btakes? \d+ ?(?:s|ms|sec\w*|min\w*|hours?)\b|\b(?:dinner|lunch|breakfast|game|match|concert|show|abendessen|spiel|konzert) (?:is|ist|starts|beginnt)\b|\b(?:screen|monitor|bildschirm|display) (?:is|ist)\b|^(?:i|we) use (?:the|your|this|that) (?:example|code|same|version|file)"
    r"|^[^,;]*\b(?:hurts?|fails?|failed|crash\w*|hangs?|breaks?|tut weh|spinnt|stürzt|hängt|geht nicht|funktioniert nicht|doesn't (?:work|start|compile|open|load)|keeps \w+ing|again|schon wieder|frozen|tests? fail\w*|error|exception|404|500|stack ?trace|problem\w*|bug)\b"
    r"|\b(?:meeting|call|appointment|flight|train|exam|interview|termin|besprechung|prüfung|zug|flug|movie|film|party|treffen)\b(?!s)[^,]* (?:is|at|um|ist) (?:at |um )?\d"
    r"|\bmy (?:question|point|problem|issue|guess|bad|mistake|idea|turn|plan|brain|head|god|next)\b|\b(?:our|the|my) (?:next|first|last|current) \w+ (?:is|are)\b|\bmeine? (?:frage|problem|idee|güte|meinung|kopf)\b|\b(?:a|one) (?:bug|problem|issue) in\b"
)
_OWN = Forms(
    rf"^(?:i'm|i am|we're|we are) {_ADV}(?!{_STATES_ONCE}\b)(?:\w+-\w+ |legally |severely |partially |fully |newly |recently |happily |strictly |originally |mildly )?(?:(?:an?|the|one of|from|based|born|married|divorced|single|widowed|engaged|allergic|intolerant|vegan|vegetarian|pescatarian|diabetic|celiac|coeliac|lactose|gluten|dyslexic|autistic|deaf|blind|colou?r[- ]?blind|left[- ]handed|right[- ]handed|pregnant|retired|self[- ]employed|freelanc\w+|unemployed|"
    r"in charge|responsible|called|named|learning|studying|training|working (?:as|at|in|for|on|night|part|from)|living|\d+|on (?:call|night|the (?:board|night)|parental|a diet)|in (?:my|the) \w+ (?:semester|year)|at (?:uni|university|school)|closed|open|located|short[- ]sighted|hard of hearing|\w+ish\b|\w+ese\b|\w+ian\b|german|dutch|swiss|french|jewish|muslim|catholic|buddhist|two|three|four|five)\b)"
    rf"|^(?:i|we)(?:'ve| have) (?:got )?(?!{_BAD_HAVE})(?:(?:an?|about|around|over|only|two|three|four|five|six|ten|\d+\S*|no|type|severe|bad|chronic|my own|our own) )?(?:\w+ ?)+"
    r"|^(?:i|we) (?:don't|do not|never|can't|cannot) (?:really |ever |usually )?(?:eat|drink|smoke|drive|work|do \w*days?|speak|use|have (?:a|any|children|kids|internet)|read (?!this|that|it|the)|own|tolerate|handle \w+|hear well|see (?:well|colou?rs?)|deploy|ship|accept|sell|take|celebrate|believe in|digest)\b(?! (?:it|this|that|the answer)\b)"
    r"|^(?:i|we)(?:'ve| have) been \w+ing .*\b(?:since|for (?:\d+|many|over \d+) years|for years)\b|^(?:i'm|i am) more of an? |^i go by |^i'm known as |^can't (?:have|eat|drink) \w+|^ich (?:werde?|wurde) \w+ (?:gerufen|genannt)\b|^ich (?!habe|hab|verstehe|finde|sehe|will|möchte|brauche|kenne|weiß)\w+ kein\w* \w+|^both (?:of )?(?:my|our) "
    r"|^(?:i|we) look after\b|^(?:i|we) (?:come|am|are) from\b|^(?:i|we) (?:usually|normally|mostly|always|generally|often) (?:get up|go to|go by|come|take|do|have|start|stop)\b|^people call me\b|^everyone calls me\b|\bcalls? me \w+$"
    rf"|^(?:my|our) {_NP}{_ADV}(?:{_VERB_S}|\w+s)\b|^(?:my|our) [\w'-]+(?: [\w'-]+)?'s (?!not\b|so\b|too\b|\w+ing\b|just\b|really\b|broken\b|down\b)\w+|^my name's\b"
    r"|^[\w.& -]{2,40} (?:is|are|was|ist|sind) (?:also |auch )?(?:my|our|mein\w*|unser\w*) (?!favou?rite thing|bad|fault|turn|problem|cup|schuld|problem|ding)\w+|^(?:moved to|live in|living in|work (?:as|at|in|for|from|nights?)|working as|born in|grew up in|based in|got (?:two|three|a) (?:kids?|dog|cat|son|daughter|children)|married to|allergic to|vegan|vegetarian)\b"
    r"|^(?:the|our) (?:dog|cat|horse|kids?|baby|shop|farm|business|boat)(?:'s name)? (?:is|are|'s) (?:called |named )?\w+|^(?:mum|mom|dad|grandma|grandpa|mama|papa|oma|opa) \w+"
    rf"|^(?:ich bin|bin|wir sind) (?:ja |halt |übrigens |auch |von beruf |gelernte[rs]? |seit [^,]{{3,20}} )*(?!{_STATES_ONCE}\b)(?:(?:ein\w*|der|die|aus|in|bei|zuständig|verantwortlich|verheiratet|geschieden|schwanger|taub|blind|farbenblind|vegan|vegetarisch|allergisch|selbstständig|selbständig|berentet|\d+|linkshänder\w*|rechtshänder\w*|katholisch|evangelisch|muslimisch|jüdisch|freiberufl\w+|alleinerziehend|gegen \w+ allergisch|laktoseintolerant|nachts|vormittags|montags|freitags|\w+tags)\b|\w{{3,}}(?:er|erin|in|ist|istin|or|orin|ent|entin|eur|eurin|mann|frau|ant|antin|loge|login|arzt|ärztin|wirt|wirtin|koch|köchin|student\w*|azubi|hebamme|lehrling|chef\w*|allergiker\w*|kraft|hilfe)\b)"
    rf"|^(?:ich bin|bin) (?:ja |übrigens )?(?!{_STATES_ONCE}\b)\w{{4,}} (?:in|bei|an|für|von|am) \w+|^ich kann (?:kein\w*|fließend|nur) \w+[.! ]*$"
    r"|\b(?:\w+tags|abends|morgens|mittags|nachts|vormittags|nachmittags|am wochenende)\b.*\b(?:bin|habe|kann|muss|arbeite|koche?|esse?|mache?|gehe?|fahre?) ich\b|^(?:on|every) \w+days? (?:i|we) \w+|^(?:i|we) \w+.* (?:on \w+days|every \w+day|every week|every morning|every night|once an? \w+|twice an? \w+)\b"
    rf"|^(?:ich |wir )?(?:habe|haben) (?!{_BAD_HAVE})(?!.*\b(?:ge\w+t|ge\w+en|ver\w+t|ver\w+en|be\w+t|\w+iert)[.! ]*$)\w+|^(?:bei uns|bei mir|in unserem|in unserer|in meinem|in meiner) (?!\w*regnet)\w+"
    rf"|\b(?:bei uns|bei mir)\b|^(?:mein\w*|unser\w*) {_NP}{_ADV}{_VERB_S}\b|\bheiße ich\b|\bich heiße\b"
)
_FIRST_EN = re.compile(
    rf"^(?:(?:in|at|on|for|during|with|since|from|as of|starting) (?:[\w'-]+ ){{1,4}}?)?(?:i|we) {_ADV}(?P<verb>[a-z']+)(?P<rest>.*)"
)
_FIRST_DE = re.compile(
    rf"^(?:ich|wir) {_ADV}(?P<verb>[a-zäöüß]+)(?P<rest>.*)|^(?:\w+ ){{0,3}}?(?P<turned>[a-zäöüß]{{3,}}) (?:ich|wir)\b(?P<after>.*)"
)
_PARTICIPLE = re.compile(
    r"\b(?:habe|haben|bin|sind)\b.*\b(?:ge\w+(?:t|en)|ver\w+(?:t|en)|be\w+t|er\w+t|\w+iert|an\w*ge\w+)[.! ]*$"
)
_DEFINITE = re.compile(
    rf"^(?:the|this|der|die|das|dieses|diese) {_NP}{_ADV}{_VERB_S}\b|^(?:der|die|das|mein\w*|unser\w*) (?:\w+ ){{1,3}}?(?!nicht|jetzt|sehr|mit|seit)\w{{3,}}t (?:jetzt |immer |nur )?\w+|^(?:ab|from|as of) \w+(?: on)? (?:\w+t|the|our|we) |^(?!(?:everyone|everybody|people|someone|nothing|something|life|it|this|that|there|they|he|she|who|what|what's|fun|octopus\w*|i|we|you|no|not|if|when|wenn|ich|wir|es|er|sie|du|man|mir|mich)\b)(?:[\w'-]+ ){{1,3}}?(?:only )?(?:happens?|take place|takes place|is on|are on|is in|are in|is at|are at|runs?|starts?|ends?|begins?|opens?|closes?|lives?|listens?|expires?|rotates?|costs?|goes?|go|is due|are due|is stored|are stored|is hosted|läuft|laufen|beginnt|endet|kostet|gehen|geht|liegt|liegen|steht|stehen|öffnet|schließt|macht|übernimmt|need|needs|require|requires) |^[\w./-]+ (?:runs on|listens on|lives (?:at|in)|is (?:the|on port|at|hosted|called|in)|läuft auf|liegt (?:auf|in)|steht (?:auf|in)|heißt) "
)


_CONDITION = re.compile(
    r"^(?:when(?:ever)?|if|every ?time|each time|wenn|falls|sobald|immer wenn|jedes mal,? wenn) (?:you|i|du|ich) (?!were|was|had|could|lived|won|did|am (?:back|done|late)|bin|wäre|hätte|könnte|würde|get|see|think|remember|go\b|come|gehe|komme|denke)(?:\w+ ?){2,}"
)


_MEANS = re.compile(  # the meaning of a word of the speaker
    r"^(?:when|if|wenn) (?:i|ich) .*(?:\bi mean\b|\bmeine ich\b|\bmein ich\b)|^(?:by|mit) .{2,40} (?:i (?:always )?mean|meine? ich)\b"
)
_OWN_MAIN = re.compile(  # the main clause after a condition is about the speaker or others
    r"(?:,| then| dann)? (?:i|we|he|she|they)(?:'ll| will|'d|'m| am| want| feel| get| go)? |, (?:it|my|the) |\b\w+ (?:ich|wir|er|sie|es|man)\b(?!.* (?:bitte|immer|nie)\b)"
)


def _is_instruction(said: "_Said") -> bool:
    text = said.rest
    if _SHOULD.match(text) and (said.lasts or not _SPECIFIC.search(text)):
        return True
    if _WANTS_YOU.match(text) and not (_STYLE.match(text) and not _SPECIFIC.search(text)):
        return said.lasts or bool(re.match(r"^(?:ich|wir) .* keine?n? ", text))
    if _MEANS.match(text) or (_CONDITION.match(text) and not _OWN_MAIN.search(text[8:])):
        return True
    bare = re.sub(
        r"^(?:(?:always|never|please|bitte|immer|nie|niemals|just|only|nur|don't|do not|ever|ab \w+|from \w+ on),? )+",
        "",
        text,
    )
    is_own = (
        re.match(
            r"^(?:i|we|ich|wir|my|our|mein\w*|unser\w*|it|he|she|they|there|es|er|sie)\b(?! (?:can|darf|kann) (?:only|nur))",
            bare,
        )
        is not None
        or re.search(r"^[^,]*\b(?:ich|wir)\b(?! (?:schreib|paste|schick|frag))", text) is not None
    )
    is_specific = _SPECIFIC.search(text) is not None
    if said.lasts_strongly and not is_own:
        return True
    if said.lasts and not is_own:
        is_order = _NO_VERB.match(bare) is None or _NOMINAL.match(text) is not None
        return is_order and (said.says_lasting or not is_specific)
    return not is_specific and _is_manner(text, is_polite=said.is_polite)


def _is_manner(text: str, *, is_polite: bool) -> bool:
    """True for an instruction about manner, which lasts although it does not say so."""
    is_nominal = is_polite and (_NOMINAL.match(text) or _NOMINAL_PLEASE.match(text)) is not None
    return not _ONE_OFF_DE.match(text) and (_STYLE.match(text) is not None or is_nominal)


def _is_habit(said: "_Said") -> bool:
    """True for a present tense of a state or habit: `I teach physics`, `wir backen nachts`."""
    if (match := _FIRST_EN.match(said.rest)) is not None:
        verb, rest = match["verb"], match["rest"]
        is_done_often = verb in {"go", "come", "do", "have"} and bool(_HABITUAL.search(said.rest))
        is_present = not verb.endswith(("ed", "ing", "ly")) and bool(rest.strip())
        is_general = verb not in _MOMENT_VERBS_EN or is_done_often
        return is_present and is_general and not _SPECIFIC.search(rest[:24])
    if (match := _FIRST_DE.match(said.rest)) is not None:
        verb = match["verb"] or match["turned"]
        rest = match["rest"] or match["after"] or ""
        is_verb = (
            verb.endswith(("e", "en", "n", "ern", "eln"))
            or match["verb"] is not None
            or verb
            in {"koch", "back", "trink", "ess", "lern", "arbeit", "fahr", "schreib", "geh", "les"}
        )
        if {verb, f"{verb}e", verb.removesuffix("e")} & _MOMENT_VERBS_DE and not (
            _HABITUAL.search(said.rest)
            and verb.startswith(("geh", "fahr", "mach", "komm", "nehm", "nimm", "bin"))
        ):
            return False
        if _NOW.search(rest[:24]) and not _HABITUAL.search(said.rest):
            return False
        return (
            is_verb and not _PARTICIPLE.search(said.rest) and bool(rest.strip() or match["turned"])
        )
    return False


_NOW = re.compile(r"\b(?:jetzt|gleich|mal|gerade|schon|kurz|schnell|erstmal|nun|los|raus|rein)\b")
_HABITUAL = re.compile(
    r"\b(?:jede[nrsm]?|immer|nie|niemals|meistens|normalerweise|oft|\w+tags|abends|morgens|nachts|every|on \w+days|usually|always|never|once an?|twice an?|often|mostly|grundsätzlich|seit \d+|since \d+)\b"
)


class _Said(NamedTuple):
    """A sentence in plain words, and what is asked about it more than once."""

    text: str
    rest: str
    lasts: bool
    lasts_strongly: bool
    says_lasting: bool  # by an adverb
    is_polite: bool


_READINGS: tuple[tuple[Sense, Callable[[_Said], object]], ...] = (
    ("decision", lambda said: _DECISION.search(said.rest) or _DECISION.search(said.text)),
    ("taste", lambda said: _TASTE.search(said.rest)),
    ("instruction", _is_instruction),
    ("change", lambda said: _CHANGE.search(said.rest)),
    ("own", lambda said: _OWN.search(said.rest) and not _TRANSIENT.search(said.rest)),
    ("own", lambda said: _is_habit(said) and not _TRANSIENT.search(said.rest)),
    ("definite", lambda said: _DEFINITE.search(said.rest) and not _TRANSIENT.search(said.rest)),
)


def _words_of(sentence: str) -> str:
    """Return the plain words of a sentence without its quotation marks."""
    return plain(sentence.translate(_NO_MARKS))


_NO_MARKS = dict.fromkeys(map(ord, '"“”„«»`'))


def is_transient(sentence: str) -> bool:
    """True for a state that passes and a report of trouble."""
    return _TRANSIENT.search(without_lead(_words_of(sentence)))


_ORDER_FIRST = re.compile(rf"^{LASTING_ORDER},? (?=(?:i|we|ich|wir) )")


def find_sense(sentence: str) -> Sense | None:
    """Return what a sentence says that lasts; None for nothing."""
    text = _words_of(sentence)
    lead_less = without_lead(text)
    rest = _ORDER_FIRST.sub("", lead_less)
    said = _Said(
        text=text,
        rest=rest,
        lasts=_LASTS.search(lead_less) is not None,
        lasts_strongly=_LASTS_STRONGLY.search(text) is not None,
        says_lasting=re.search(
            r"\b(?:always|never|ever|immer|nie|niemals|grundsätzlich|stets|by default|every ?time)\b",
            rest,
        )
        is not None
        or _LASTS_STRONGLY.search(text) is not None,
        is_polite=re.search(r"\b(?:please|bitte)\b", text) is not None,
    )
    if text.endswith("?"):
        return None
    found = next((sense for sense, is_so in _READINGS if is_so(said)), None)
    return "noted" if found is None and is_noted(sentence) else found


def is_noted(sentence: str) -> bool:
    """True if an order to remember precedes a statement about anything."""
    text = _words_of(sentence)
    return (
        _ORDER.search(text) is not None
        and re.match(
            r"(?:i|we|ich|wir|the|a|an|my|our|der|die|das|ein\w*|mein\w*|unser\w*|[\w'-]+ (?:is|are|has|ist|sind|hat)) ?\b.* ",
            without_lead(text),
        )
        is not None
    )


def is_order(sentence: str) -> bool:
    """True if a sentence orders to remember what it says, or to do so from now on."""
    text = _words_of(sentence)
    if _ORDER.search(text):
        return True
    return _LASTS_STRONGLY.search(text) is not None and find_sense(sentence) in {
        "instruction",
        "taste",
    }
