"""Changes: whether a later statement takes the place of an earlier one, in a person's own words.

"Our standup is at 9:15" and, ninety days later, "standup moved to 9:45": few words in common, none
about the value.  The reading is of parts, not of sentences:

- the **subject** of each, the words in front of its first verb ("I", "we" and "our" are none);
- the **value**: what is behind the verb, by kind (time, day, number, name of a machine, place, words);
- the **cue** of a change ("moved to", "no longer", "nicht mehr", "jetzt"), and the terms that the
  later one names as replaced ("replaced X by Y", "statt X", "kein X mehr").

`replaces` is true if the later one denies the earlier, names its value as replaced, or gives another
value of the same kind about the same subject.  It is false where anything says that both may be true:
another person, scope or day, an addition ("also"), a question, a plan, an exception of today, and an
earlier statement of several parts of which the later one changes one.  `touches` holds for these last
too: both are kept, and the later one is shown first.

Everything is about words: English and German, in any case, with or without punctuation.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple

from palyra.core.memory.word_forms import forms_of

MAX_CHARS = 300  # of a statement; a longer text is no statement
_CACHED = 4_096
_FOLD = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "’": "'", "`": None, '"': None, "“": None,
                       "”": None, "„": None})  # fmt: skip


def _fold(text: str) -> str:
    return text.casefold().translate(_FOLD)


def _words(text: str) -> frozenset[str]:
    return frozenset(_fold(text).split())


def _any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{_fold('|'.join(patterns))})(?!\w)")


# --- words ---------------------------------------------------------------------------------------

_FIRST = _words(
    "i me my mine myself we us our ours ourselves user ich mich mir mein meine meinem meinen meiner wir uns"
    " unser unsere unserem unseren unserer unserm unsern nutzer benutzer im ive id ill i'm i've i'd i'll we're"
    " we've we'll we'd were bin hab habe haben habs"
)
_FUNCTION = _words(
    "a an the this that these those and or of to in on at by for with from as into onto over via per about"
    " around up out off down it its it's he she they them his her their him there here is are was were be been"
    " being am has have had do does did doing done will would can could shall should may might must so just"
    " really very quite pretty much still already all any some than then too also s t re ve ll d m what which who"
    " but if not no now get gets got let please yes yeah ok okay well oh hey hi btw fyi ah um"
    " ein eine einem einen einer eines der die das dem den des und oder von zu zum zur in im an am auf bei beim"
    " fuer mit aus nach als er sie es ihm ihr ihn ihre ihrem ihren ist sind war waren sein bin bist seid hat"
    " habe haben hatte hatten wird werden wurde wurden worden kann koennen so sehr noch schon auch da dort hier man"
    " sich ja doch mal eben halt nur aber ueber um bis ab seit pro nicht kein keine keinen keinem keiner jetzt nun"
    " dass wie was der uns euch ne nen nem ner fuern fuers sadly unfortunately luckily leider everywhere dazu dir stell vor after every due done etwa erst immer total gern gerne wirklich echt super komplett absolut wieder again always only bitte btw naja ach also denn haetten waere ins ans vom hab habs"
)
# Words of a change and of its time, which are neither subject nor value.
_CHANGE_WORDS = _words(
    "no longer not any more anymore now nowadays currently meanwhile recently lately finally since starting"
    " effective instead rather actually correction update updated changed change changes moved move moves moving"
    " switched switch switching switches replaced replace replaces migrated migrate renamed rename converted"
    " changed swapped swap upgraded upgrade downgraded bumped bump raised raise lowered lower reduced increased"
    " increase dropped cut extended shortened postponed rescheduled pushed brought forward back gone left stopped"
    " stop quit gave given giving up ditched traded retired sold cancelled canceled became become turned turns come used new"
    " news last week month year ago days months weeks years these from to today yesterday turns sorry wrong"
    " previously formerly before earlier everyone everything completely entirely finally settled went going go"
    " mehr laenger sondern statt stattdessen anstatt anstelle ersetzt ersetzen abgeloest loest umbenannt umgezogen"
    " gezogen umgestiegen umgestellt gewechselt wechsel wechseln gewandert verlegt verschoben vorverlegt geaendert"
    " aendert aendern erhoeht gesenkt reduziert angehoben verkuerzt verlaengert gekuendigt aufgehoert aufgegeben"
    " abgeschafft verkauft migriert gestiegen gesunken korrektur eigentlich inzwischen mittlerweile sofort kuenftig"
    " neu neue neuer neues neuen neuem frueher vorher seitdem letzte letzten letzter woche monat jahr gestern heute"
    " heutzutage zwischenzeitlich endlich komplett ganz hoch runter geworden stimmt falsch raus weg zieht ziehen"
)
# Verbs that only tie a value to its subject, by what they say; verbs of one group are one verb.
_VERB_GROUPS = (
    "live lives living lived reside resides based settled moved relocated wohne wohn wohnt wohnen wohnst lebe lebt leben gezogen umgezogen",
    "work works working worked job employed joined arbeite arbeitet arbeiten angestellt jobbe jobbt",
    "use uses using utilise utilizes nutze nutz nutzt nutzen benutze benutz benutzt benutzen verwende verwendet verwenden"
    " rely relies setze setzen setzt nehme nehmen nimmt",
    "run runs running laeuft hosted hosts host gehostet liegt liegen sits sit lies deployed deploy deploys",
    "cost costs kostet kosten price priced preis charges charge zahle zahlen zahlt pay pays fee rent rents miete",
    "start starts starting begin begins opens open beginnt beginnen startet starten faengt oeffnet",
    "end ends ending closes close finishes finish endet enden schliesst",
    "like likes liked love loves loved enjoy enjoys prefer prefers preferred favour favours fond mag magst moegen"
    " liebe liebt bevorzuge bevorzugt gern gerne",
    "drive drives driving fahre fahr faehrt fahren ride rides",
    "eat eats eating esse ess isst essen",
    "drink drinks drinking trinke trink trinkt trinken",
    "called named name names heisst heissen nennt nennen",
    "meet meets trifft trefft",
    "study studies studying studiere studiert",
    "take takes taking dauert dauern lasts last",
    "listen listens lauscht hoert",
    "allow allows permit permits erlaubt",
    "keep keeps hold holds stay stays behaelt bleibt bewahrt",
    "need needs require requires braucht benoetigt",
    "smoke smokes rauche raucht",
    "play plays spiele spiel spielt spielen",
    "go goes gehe geh geht gehen",
    "train trains trainiere trainiert",
    "write writes written schreibe schreibt schreiben",
    "send sends schicke schickt schicken sende sendet",
    "belong belongs gehoert gehoeren",
    "lead leads leitet leite manages manage managed verantwortet kuemmert responsible owns own",
    "read reads lese liest", "speak speaks spreche spricht", "own besitze besitzt",
    "store stores stored speichert speichern lagern lagert", "pick picks hole holt abhole",
    "teach teaches unterrichte unterrichtet", "ship ships liefert liefern delivered",
    "book books", "wear wears trage traegt", "weigh weighs wiegt", "buy buys kaufe kauft kaufen",
)  # fmt: skip
_GROUP = {word: number for number, group in enumerate(_VERB_GROUPS) for word in group.split()}
_TIES = _words(
    "get does do did traded died retired lost should must soll sollen muss muessen gets went turned is are was were be am been has have had will can ist sind war waren wird werden bin hat habe haben wurde wurden"
    " i'm we're i've we've it's that's equals means heisst moved moves switched changed replaced renamed migrated"
    " became become went goes costs stopped quit gave raised lowered bumped upgraded swapped dropped ditched"
    " got gets wechselt zieht zog kostet rescheduled postponed pushed increased reduced"
)
_DISLIKES = _words(
    "hate hates dislike dislikes avoid avoids detest detests loathe loathes despise hasse hasst verabscheue"
    " meide meidet vermeide vermeidet allergic allergisch quit stopped stop abgewoehnt"
)
_PERSONS = _words(
    "mother mom mum mama father dad papa sister brother wife husband partner boyfriend girlfriend son daughter kid"
    " kids child children uncle aunt cousin grandma grandpa grandmother grandfather friend boss manager colleague"
    " neighbour neighbor flatmate roommate coworker teacher customer client"
    " mutter vater schwester bruder sohn tochter kind kinder onkel tante oma opa freund freundin chef"
    " chefin kollege kollegin nachbar nachbarin mitbewohner mitbewohnerin kunde kundin lehrer lehrerin"
    " parents eltern nephew niece neffe nichte twin schwager schwaegerin"
)
_LEADS = _words("in at on to with for im am um auf mit bei zu nach fuer von bis")
_NOT = _words("isnt dont doesnt wasnt arent cant wont didnt havent hasnt")
_NOMINATIVES = _words("i we ich wir i'm we're i've we've")
_THIRD = _words("he she his her him er ihm ihn")
_GENERIC = _words(
    "team company everyone people thing things stuff way place time value setting firma leute sache sachen"
    " wert zeit uhr clock euro euros eur dollar dollars usd percent prozent minutes minute hours hour stunden"
    " minuten person personen"
)
_PLACE_PREPOSITIONS = _words("in at on near bei im ins auf am nach to into nahe neben next onto zu zur zum")
_UNITS = {
    **dict.fromkeys(_words("minute minutes min mins minuten"), "min"),
    **dict.fromkeys(_words("seconds secs sekunden sekunde"), "s"),
    **dict.fromkeys(_words("hour hours h hrs stunde stunden"), "h"),
    **dict.fromkeys(_words("day days tag tage tagen"), "day"),
    **dict.fromkeys(_words("week weeks woche wochen"), "week"),
    **dict.fromkeys(_words("euro euros eur €"), "eur"),
    **dict.fromkeys(_words("dollar dollars usd $"), "usd"),
    **dict.fromkeys(_words("percent prozent %"), "%"),
    **dict.fromkeys(_words("mg"), "mg"),
    **dict.fromkeys(_words("kg kilo kilos"), "kg"),
    **dict.fromkeys(_words("km"), "km"),
    **dict.fromkeys(_words("gb mb tb ms lines zeilen"), "size"),
}
_NUMBER_WORDS = {
    word: str(number)
    for number, words in enumerate(
        "one eins|two zwei|three drei|four vier|five fuenf|six sechs|seven sieben|eight acht|nine neun|ten zehn"
        "|eleven elf|twelve zwoelf|thirteen dreizehn|fourteen vierzehn|fifteen fuenfzehn|sixteen sechzehn"
        "|seventeen siebzehn|eighteen achtzehn|nineteen neunzehn|twenty zwanzig".split("|"),
        1,
    )
    for word in words.split()
} | {"thirty": "30", "dreissig": "30", "forty": "40", "vierzig": "40", "fifty": "50", "fuenfzig": "50",
     "hundred": "100", "hundert": "100"}  # fmt: skip
_DAY_NAMES = {
    form: short
    for short, forms in {
        "mon": "monday mondays montag montags mon", "tue": "tuesday tuesdays dienstag dienstags tue tues",
        "wed": "wednesday wednesdays mittwoch mittwochs wed", "thu": "thursday thursdays donnerstag donnerstags thu thurs",
        "fri": "friday fridays freitag freitags fri", "sat": "saturday saturdays samstag samstags sonnabend",
        "sun": "sunday sundays sonntag sonntags",
    }.items()
    for form in forms.split()
}  # fmt: skip
_MONTH_NAMES = _words(
    "january february march april june july august september october november december januar februar maerz mai"
    " juni juli oktober dezember"
)
_RATES = _words(
    "hourly daily weekly biweekly fortnightly monthly quarterly yearly annually once twice stuendlich taeglich"
    " woechentlich monatlich quartalsweise jaehrlich einmal zweimal dreimal"
)
_DAYTIMES = _words(
    "nights morning mornings afternoon evening evenings night noon midnight morgens mittags nachmittags abends nachts"
    " mittag abend vormittag vormittags nachmittag"
)

# --- cues ----------------------------------------------------------------------------------------

_STRONG = _any_of(
    r"no longer", r"not? [^.;]{0,60}?any ?more", r"any ?more", r"any longer", r"replac(?:ed|es|ing)", r"renam(?:ed|ing)",
    r"(?:moved?|moving|moves|migrated?|switch(?:ed|es|ing)?|changed?|converted|relocated|rescheduled|postponed|shifted|swapped)",
    r"instead(?: of)?", r"rather than", r"in place of", r"dropped", r"ditched", r"retired", r"gave up", r"given up",
    r"quit", r"stopped", r"got rid of", r"phased out", r"went (?:from|up|down|off|back|over)", r"gone (?:up|down|off)",
    r"correction", r"actually", r"used to", r"became", r"become", r"pushed (?:back|to|out)", r"brought forward",
    r"down to", r"up to", r"raised", r"lowered", r"increased", r"reduced", r"decreased", r"bumped", r"upgraded", r"downgraded", r"extended",
    r"shortened", r"turned", r"grew out of", r"is (?:gone|out|history|dead)", r"supersede[sd]?", r"sold", r"cancelled", r"canceled",
    r"was wrong", r"i meant", r"scratch that", r"formerly", r"n't \w+ [^.;]{1,60} these days", r"not true any",
    r"took over", r"takes over", r"taken over", r"handed (?:over|to)", r"passed to", r"left",
    r"nicht mehr", r"nicht laenger", r"kein\w* [^.;]{0,60}?mehr", r"sondern", r"statt", r"stattdessen", r"anstatt", r"anstelle",
    r"ersetz(?:t|en)", r"abgeloest", r"loest [^.;]{1,60} ab", r"umbenannt", r"heisst (?:jetzt|nun|ab)", r"umgezogen", r"umgestiegen", r"umgestellt",
    r"(?:ge)?wechsel(?:t|n|e)?", r"verlegt", r"verschoben", r"vorverlegt", r"geaendert", r"aendert sich", r"erhoeht", r"gesenkt", r"reduziert",
    r"angehoben", r"verkuerzt", r"verlaengert", r"gekuendigt", r"aufgehoert", r"aufgegeben", r"abgeschafft", r"verkauft", r"migriert",
    r"gestiegen", r"gesunken", r"korrektur", r"eigentlich", r"stimmt nicht", r"war falsch", r"frueher", r"abgewoehnt", r"uebernommen",
    r"gezogen", r"zieht", r"um auf", r"geworden", r"uebernimmt", r"vertippt", r"doch (?:lieber|nicht)", r"lieber doch",
    r"->", r"=>", r"→", r"hochgesetzt", r"runtergesetzt", r"heraufgesetzt", r"herabgesetzt", r"ausgetauscht", r"getauscht", r"aufgestockt", r"umgeschult", r"come to (?:love|like)",
    r"(?:grown|learned|learnt) to (?:love|like)",
)  # fmt: skip
_WEAK = _any_of(
    r"now", r"nowadays", r"these days", r"by now", r"meanwhile", r"since (?!then)\w+", r"as of", r"from \w+ on(?:wards?)?",
    r"starting (?:from )?\w+", r"recently", r"lately", r"finally", r"turns out", r"(?:my|our|the|a) new", r"new \w+ (?:is|are)",
    r"currently", r"jetzt", r"nun", r"inzwischen", r"mittlerweile", r"ab sofort", r"ab \w+", r"seit(?:dem| \w+)", r"kuenftig", r"neuerdings",
    r"(?:mein|unser|d|n|ein)\w{0,3} neue[srnm]?", r"neue[srnm]? \w+ (?:ist|sind)", r"seit kurzem", r"heutzutage", r"update", r"no,",
)  # fmt: skip
_ADDS = _any_of(
    r"also", r"too(?=$|\s*[,.;!])", r"as well", r"in addition", r"additionally", r"another", r"a second", r"besides", r"apart from", r"on top",
    r"sometimes", r"occasionally", r"both", r"plus", r"either", r"additional", r"alongside", r"next to", r"once in a while", r"now and then",
    r"auch", r"zusaetzlich", r"ausserdem", r"ebenfalls", r"ebenso", r"neben", r"manchmal", r"ab und zu", r"noch ein\w*", r"sowohl", r"weitere[srnm]?",
    r"zweite[srnm]?", r"beide", r"dazu", r"gelegentlich", r"extra", r"just as much", r"genauso", r"still", r"weiterhin", r"immer noch", r"nach wie vor",
    r"same as before", r"unchanged", r"unveraendert",
)  # fmt: skip
_OPEN = _any_of(
    r"if", r"whether", r"maybe", r"perhaps", r"might", r"would", r"could", r"should we", r"considering", r"thinking (?:about|of)", r"plan(?:s|ning)? to",
    r"wants? to", r"wish\w*", r"hope to", r"hoping", r"wondering", r"dream(?:ed|t|s)?", r"imagine", r"suppose", r"almost", r"nearly", r"were to", r"supposed to",
    r"wonder", r"someday", r"one day", r"talked about", r"discussing", r"thought about", r"tempted", r"rumou?r\w*", r"joke", r"joking", r"proposed?", r"suggest\w*",
    r"wenn", r"falls", r"ob", r"vielleicht", r"koennte\w*", r"wuerde\w*", r"ueberleg\w*", r"moechte\w*", r"plan(?:e|en|t)", r"waere\w*", r"haette\w*",
    r"angenommen", r"beinahe", r"fast", r"irgendwann", r"eventuell", r"schlaegt vor", r"vorgeschlagen", r"geruecht\w*", r"traum\w*", r"scherz", r"eigentlich wollte",
    r"diskutier\w*", r"denk\w* (?:darueber|drueber)", r"says?", r"said", r"claims?", r"told", r"sagt\w*", r"meint\w*", r"behauptet\w*", r"erzaehlt\w*",
)  # fmt: skip
_BRIEF = _any_of(
    r"today", r"tonight", r"tomorrow", r"this (?:week|time|once|morning|afternoon|evening|month|monday|tuesday|wednesday|thursday|friday|saturday|sunday)",
    r"just this", r"for now", r"for once", r"temporar\w+", r"except\w*", r"for the (?:next|moment|time being)", r"next (?:week|monday|tuesday|wednesday|thursday|friday)",
    r"until", r"while", r"during", r"just for", r"only (?:for|on|this)", r"exceptionally", r"one[- ]off", r"last (?:time|night)", r"yesterday", r"on holiday",
    r"heute", r"morgen", r"diese[ns]? (?:woche|mal|monat|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)", r"ausnahmsweise", r"voruebergehend", r"einmalig", r"nur (?:fuer|am|diese\w*|heute)",
    r"ausser", r"bis", r"waehrend", r"naechste\w? (?:woche|montag|dienstag|mittwoch|donnerstag|freitag)", r"erst ?mal", r"zur ?zeit", r"gestern", r"im urlaub",
)  # fmt: skip
_PAST = _any_of(r"used to be", r"was \S+ before", r"formerly", r"back then", r"war frueher", r"frueher war", r"damals")
_REASON = re.compile(
    r"(?:,\s*|\s+)(?:because|since (?:it|we|i|they|he|she|the|our|my|that)\b|so that|due to|weil|wegen|damit|denn"
    r"|as (?:it|we|i|they|the|our|my)\b|after (?:the|all|we|i|he|she|they|\w+ing)\b|nachdem|thanks to|thank god).*"
)
_MONTH = "|".join(sorted((*_MONTH_NAMES, "may")))
_WHEN = (
    rf"(?:\d{{1,2}}\.?(?:st|nd|rd|th)?\s+)?(?:of\s+)?(?:{_MONTH})(?:\s+\d{{1,2}}(?:st|nd|rd|th)?)?(?:,?\s+(?:19|20)\d\d)?"
    r"|(?:19|20)\d\d|\w*day|\w*tag|mittwoch|(?:the )?(?:week|month|year|spring|summer|autumn|winter|first)|woche|monat|jahr"
    r"|sommer|herbst|fruehjahr|fruehling|kurzem|today|heute|sofort|now|jetzt|gestern|yesterday|then|tomorrow|morgen|ersten"
)
_FROM_WHEN = re.compile(
    r"(?<!\w)(?:(?:since|as of|starting(?: from)?|effective|beginning|seit|ab|zum|per|from)\s+"
    r"(?:the\s+|dem\s+|den\s+|letzte\w*\s+|last\s+|next\s+|early\s+|late\s+|mid\s+|anfang\s+|mitte\s+|ende\s+|naechste\w*\s+|dies\w*\s+|this\s+)*"
    rf"(?:{_WHEN})(?:\s+(?:on|onwards?|an))?"
    r"|(?:last|letzte\w*|vergangene\w*|vorige\w*)\s+(?:week|month|year|woche|monat|jahr|summer|winter|spring|autumn|sommer|herbst)"
    r"|(?:\w+\s+)?(?:days?|weeks?|months?|years?)\s+ago|vor\s+\w+\s+(?:tagen|wochen|monaten|jahren)|vor\s+(?:einer woche|einem monat))(?!\w)"
)
_TOKEN = re.compile(
    r"https?://\S+?(?=[,;)]?(?:\s|$|[.!?](?:\s|$)))|[\w.+-]+@[\w.-]+\w|[~/]?[\w-]+(?:[./:_\\-][\w-]+)+/?|\d+(?:[.,:]\d+)*(?!\w)|\w+(?:'\w+)*|[%€$]|->|=>|→|[,;:.!?=]"
)
_TIME = re.compile(r"\d{1,2}[:.]\d\d(?:am|pm|uhr|h)?|\d{1,2}(?:am|pm|uhr)")
# Each with a word without which it cannot match; `OLD` begins its clause.
_DENIALS = tuple(
    (trigger, re.compile(pattern.replace("OLD", r"(?:^|(?<=[,;.] ))(?P<old>[^,;.]+?)")))
    for trigger, pattern in (
        ("no longer", r"no longer (?P<old>[^,;.]+?)(?= but |$|[,;.])"),
        (" any", r"(?:not|never|cannot|nobody|no one) (?P<old>[^,;.]*?) (?:any ?more|any longer)"),
        ("these days", r"(?:not|never) (?P<old>[^,;.]*?) these days"),
        (" but ", r"not (?P<old>[^,;.]{1,80}?) (?:, )?but (?P<new>.+)"),
        ("sondern", r"nicht (?P<old>[^,;.]{1,80}?) (?:, )?sondern (?P<new>.+)"),
        ("replac", r"replac(?:ed?|ing) (?P<old>[^;.]+?) (?:by|with) (?P<new>.+)"),
        ("replaced", r"OLD (?:was|were|got|been|is|are|gets) (?:now |just |recently |finally )?replaced (?:by|with) (?P<new>.+)"),
        ("superseded", r"OLD (?:was|were|been|is|are) superseded by (?P<new>.+)"),
        ("from ", r"(?<!\w)from (?P<old>[^,;.]+?) (?:over to|back to|to|onto|into) (?P<new>.+)"),
        ("instead of", r"instead of (?P<old>[^,;.]+)"),
        ("rather than", r"rather than (?P<old>[^,;.]+)"),
        ("in place of", r"in place of (?P<old>[^,;.]+)"),
        ("statt ", r"statt (?P<old>[^,;.]+)"),
        ("anstelle", r"anstelle (?:von )?(?P<old>[^,;.]+)"),
        ("renam", r"renam(?:ed?|ing) (?P<old>[^;.]+?) (?:to|into|as) (?P<new>.+)"),
        ("renamed", r"OLD (?:was|were|been|is|got) renamed (?:to |as |into )?(?P<new>.+)"),
        ("called", r"OLD (?:is|are|goes) (?:now )?(?:called|named|known as|by) (?P<new>.+)"),
        *(
            (verb, rf"{verb} (?:up )?(?:on |with |out of )?(?P<old>[^,;.]+?)(?= for | in favou?r of | and |$|[,;.])")
            for verb in (
                "dropped", "ditched", "retired", "gave up", "given up", "stopped", "quit", "got rid of", "phased out",
                "sold", "canceled", "cancelled", "abandoned", "left", "went off", "gone off", "done with", "moved away from",
            )
        ),
        ("used to", r"used to (?P<old>[^,;.]+?)(?= but |$|[,;.])"),
        *(
            (verb, rf"{verb} (?P<old>[^;.]+?) (?:for|to|into) (?P<new>.+)")
            for verb in ("swapped", "exchanged", "traded", "switched", "changed")
        ),
        ("->", r"OLD -> (?P<new>.+)"), ("=>", r"OLD => (?P<new>.+)"), ("→", r"OLD → (?P<new>.+)"),
        (" , not ", r"(?P<new>\S+) , not (?P<old>[^,;.]+)$"),
        (" , nicht ", r"(?P<new>\S+) , nicht (?P<old>[^,;.]+)$"),
        *((f" {gone}", rf"OLD (?:is|are) {gone}(?= |$|[,;.])") for gone in ("gone", "history", "dead", "out", "retired", "discontinued")),
        ("kein", r"kein\w* (?P<old>[^,;.]+?) mehr"),
        ("nicht ", r"(?:^|(?<=[,;.] ))(?P<old>[^,;.]*?nicht (?:mehr|laenger)[^,;.]*?)(?= sondern |$|[,;.])"),
        ("durch ", r"OLD durch (?P<new>[^,;.]+?) (?:ersetzt|abgeloest|ausgetauscht)"),
        (" von ", r"OLD (?:wurde|wurden|wird|ist) von (?P<new>[^,;.]+?) (?:ersetzt|abgeloest)"),
        ("ersetzt", r"(?P<new>[^,;.]+?) ersetzt (?P<old>[^,;.]+?)$"),
        ("loest", r"(?P<new>[^,;.]+?) loest (?P<old>[^,;.]+?) ab"),
        ("von ", r"(?<!\w)von (?P<old>[^,;.]+?) (?:auf|zu|zur|zum|nach|in|ins|aufs) (?P<new>.+)"),
        ("vom ", r"(?<!\w)vom (?P<old>[^,;.]+?) (?:auf|zu|zur|zum|nach|in|ins|aufs) (?P<new>.+)"),
        ("aufgehoert", r"(?:mit|beim) (?P<old>[^,;.]+?) aufgehoert"),
        ("aufgehoert", r"aufgehoert (?P<old>[^,;.]+?) zu \w+"),
        ("over ", r"(?P<new>[^,;.]+?) (?:took|takes|taken|taking) over (?:\w+ )?from (?P<old>[^,;.]+?)(?= as |$|[,;.])"),
        ("uebern", r"(?P<new>[^,;.]+?) (?:uebernimmt|uebernahm|hat) [^,;.]*?von (?P<old>[^,;.]+?)(?: uebernommen|$|[,;.])"),
        ("heisst", r"OLD heisst (?:jetzt|nun|ab sofort|inzwischen|mittlerweile) (?P<new>.+)"),
        ("umbenannt", r"OLD in (?P<new>[^,;.]+?) umbenannt"),
        *(
            (verb, rf"OLD {verb}(?= |$|[,;.])")
            for verb in ("abgeschafft", "gekuendigt", "aufgegeben", "verkauft", "eingestellt", "abgeschaltet", "abgewoehnt",
                         "died", "passed away", "has left", "quit", "left", "moved on", "hat aufgehoert", "geht in rente")
        ),
        ("ist ", r"OLD ist (?:jetzt |nun )?(?:geschichte|weg|raus|passe|tot|in rente|gestorben|ausgeschieden)"),
        ("sind ", r"OLD sind (?:jetzt |nun )?(?:geschichte|weg|raus|passe|tot|in rente|ausgeschieden)"),
        ("no more", r"no more (?P<old>[^,;.]+?)(?= for |$|[,;.])"),
        (" off ", r"(?:took|taken|got|am|are|i'm|we're|is|come) (?:me |us |it )?off (?P<old>[^,;.]+?)(?= in | on |$|[,;.])"),
        ("weg vo", r"weg vo[nm] (?P<old>[^,;.]+?)(?= in | am |$|[,;.])"),
        ("frueher", r"frueher (?P<old>[^,;.]+)"),
        ("frueher", r"(?P<old>(?:i|we|ich|wir) \w+ frueher [^,;.]+)"),
    )
)  # fmt: skip
_PART = re.compile(r" (?:and|und|but|aber|while|whereas|sowie|as well as|&|plus) |[,;]")
_GERMAN = _any_of(r"der", r"das", r"ist", r"nicht", r"wir", r"ich", r"und", r"ein")
_CLOCK = re.compile(
    r"(?P<full>\d{1,2}) uhr (?P<rest>\d\d)(?!\w)|(?P<how>quarter to|quarter past|half past|viertel vor|viertel nach|halb) (?P<hour>\d{1,2}|\w+)")
_TITLE = re.compile(r"(?<!\w)(?:mr|mrs|ms|dr|prof|herrn?|frau)\.?\s+(?=[a-z])", re.IGNORECASE)
_SENTENCE = re.compile(r"(?<=[\w)])[.;!](?:\s+|$)|\n+")


class _Token(NamedTuple):
    plain: str
    term: str  # one for all forms of a word
    kind: str  # "" of a word; of a value: time, day, month, daytime, rate, number, id


class _Clause(NamedTuple):
    """One statement, taken apart."""

    text: str
    tokens: tuple[_Token, ...]
    subject: frozenset[str]  # terms in front of the first verb
    name: str  # term of a subject that stands without an article: a person or a product
    nouns: frozenset[str]  # terms of words and of identifiers, without verbs
    verbs: frozenset[str]
    slots: dict[str, frozenset[str]]  # values by kind
    denied: frozenset[str]  # terms that it names as no longer true
    given: frozenset[str]  # terms that it names instead
    is_first: bool  # about the speaker
    is_third: bool  # about "him" or "her"
    persons: frozenset[str]

    @property
    def value(self) -> frozenset[str]:
        """What it says about its subject; a verb only if there is nothing else."""
        values = (self.nouns | frozenset().union(*self.slots.values())) - self.subject
        return values or self.verbs

    @property
    def terms(self) -> frozenset[str]:
        return self.nouns | self.verbs | frozenset().union(*self.slots.values())


def _term(word: str) -> str:
    """Return one term for the forms of a word: the group of a verb, or the word without its ending."""
    group = next((_GROUP[form] for form in _verb_forms(word) if form in _GROUP), None)
    if group is not None:
        return f"={group}"
    base = forms_of(word)
    word = min(base) if len(base) > 1 else word
    if len(word) >= _STEM_CHARS and word[-1] == "s" and word[-2] != "s":
        word = word[:-1]
    for ending in ("ing", "en", "er", "em", "es", "ed", "e", "n"):
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_CHARS:
            return word.removesuffix(ending)
    return word


_ING_NOUNS = _words("meeting training building opening closing writing booking")


def _verb_forms(word: str) -> Iterator[str]:
    if word in _ING_NOUNS:
        return
    yield from forms_of(word)
    for ending in ("ing", "ed"):
        if word.endswith(ending) and len(word) > len(ending) + 2:
            yield from (base := word.removesuffix(ending), f"{base}e")


_STEM_CHARS = 4


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    for match in _TOKEN.finditer(text):
        plain = match[0]
        before = found[-1].plain if found else ""
        if plain.endswith("n't") or plain in _NOT:
            verb = plain.removesuffix("t").removesuffix("'").removesuffix("n")
            found += (_Token(verb, verb, ""), _Token("not", "not", "punctuation"))
            continue
        plain = plain.removesuffix("'s")
        found.append(_Token(plain, *_kind(plain, before, text[match.end() : match.end() + 8])))
    return found


def _kind(plain: str, before: str, behind: str) -> tuple[str, str]:
    """Return the term and the kind of a word."""
    if not plain[0].isalnum() and len(plain) == 1:
        return plain, "unit" if plain in "%€$" else "punctuation"
    if plain in _DAY_NAMES:
        return _DAY_NAMES[plain], "day"
    if plain in _MONTH_NAMES:
        return plain[:3], "month"
    if plain in _DAYTIMES:
        return plain.rstrip("s"), "daytime"
    if plain in _RATES:
        return plain, "rate"
    number = _NUMBER_WORDS.get(plain, plain if plain[0].isdigit() else "")
    if number and re.fullmatch(r"\d{1,2}", number) and (
        re.match(r"\s*(?:am|pm|uhr|o'clock|h)\b", behind) or before in {"at", "um", "gegen"}
    ):
        return f"{number}:00", "time"
    if _TIME.fullmatch(number) and ("." not in number or re.match(r"\s*(?:am|pm|uhr|h)\b", behind)):
        return re.sub(r"(?:am|pm|uhr|h)$", "", number).replace(".", ":"), "time"
    if re.fullmatch(r"\d+(?:[.,:]\d+)*\.?", number):
        return number, "number"
    plain = plain.replace("-", "") if plain.replace("-", "").isalpha() else plain
    if any(char.isdigit() for char in plain) or not plain.replace("'", "").replace("-", "").isalpha():
        return plain.rstrip("./"), "id"
    return _term(plain), ""


@lru_cache(_CACHED)
def _read(text: str) -> _Clause:
    said = _CLOCK.sub(_clock, _TITLE.sub("", _fold(text)))
    plain = _FROM_WHEN.sub(" ", _REASON.sub("", said))
    tokens = _tokens(plain)
    words = [each for each in tokens if each.kind != "punctuation"]
    at = next(
        (
            place
            for place, each in enumerate(words)
            if each.plain in _TIES or each.term[0] == "=" or each.plain in _DISLIKES
        ),
        len(words),
    )
    has_verb = at < len(words)
    norm = " ".join(each.plain if len(each.plain) == 1 else _hide(each.plain) for each in tokens)
    denied, given = _find_denied(norm)
    slots: dict[str, set[str]] = {}
    for each in words:
        if each.kind and each.kind != "unit":
            slots.setdefault(each.kind, set()).add(each.term)
    if not has_verb:
        at = next((n for n, each in enumerate(words) if each.kind or each.plain in _LEADS), at)
        at = 0 if at == len(words) else at
    leading = words[:at]
    if has_verb and any(each.plain in _NOMINATIVES for each in words[: at + 2]):
        leading = []  # "after the storm we are", "jetzt nehmen wir"
    return _Clause(
        text=said,
        tokens=tuple(tokens),
        subject=frozenset(each.term for each in leading if _is_noun(each)),
        name=_name_of(text, leading, words[at] if has_verb else None),
        nouns=frozenset(each.term for each in words if _is_noun(each)),
        verbs=frozenset(each.term for each in words if each.term[0] == "="),
        slots={kind: frozenset(values) for kind, values in slots.items()},
        denied=denied,
        given=given,
        is_first=any(each.plain in _FIRST for each in (words[: at + 1] if has_verb else words)),
        is_third=any(each.plain in _THIRD for each in words),
        persons=frozenset(each.term for each in words if each.plain in _PERSONS),
    )


def _name_of(text: str, leading: Sequence[_Token], verb: _Token | None) -> str:
    """Return the term of the name that the subject is, or begins with; "" for a thing."""
    if not leading or verb is None or not _is_noun(leading[0]):
        return ""
    is_plural = verb.plain in _PLURAL_VERBS or (
        verb.plain in _GROUP and verb.plain[-1] not in "st"
    )
    nouns = sum(map(_is_noun, leading))
    is_owner = re.match(r"\w+['’]s ", text) is not None
    is_full = _GERMAN.search(_fold(text)) is None and re.match(r"[A-Z]\w+ [A-Z]\w+ ", text)
    is_one = nouns == len(leading) == 1 and not is_plural
    return leading[0].term if is_owner or is_full or is_one else ""


_PLURAL_VERBS = _words("are were have sind waren haben werden sollen muessen")


def _clock(match: re.Match[str]) -> str:
    """Return a time in words as figures."""
    if match["full"]:
        return f"{match['full']}:{match['rest']}"
    hour = _NUMBER_WORDS.get(match["hour"], match["hour"])
    if not hour.isdecimal():
        return match[0]
    shift, minutes = {
        "quarter to": (-1, 45), "viertel vor": (-1, 45), "half past": (0, 30), "halb": (-1, 30),
    }.get(match["how"], (0, 15))  # fmt: skip
    return f"{int(hour) + shift}:{minutes}"


def _is_noun(token: _Token) -> bool:
    """True for a word that says what a statement is about."""
    plain = token.plain
    if token.kind in {"id", ""}:
        return len(plain) > 1 and not (
            plain in _FUNCTION
            or plain in _FIRST
            or plain in _CHANGE_WORDS
            or token.term[0] == "="
            or plain in _GENERIC
            or plain in _DISLIKES
            or plain in _UNITS
            or plain in _TIES
        )
    return False


def _hide(word: str) -> str:
    """Return a word whose dots and commas end no clause."""
    return word.replace(".", "·").replace(",", "¸")


_WAYS = ("from ", "von ", "vom ")  # nothing changes in "goes from main to staging"


def _find_denied(norm: str) -> tuple[frozenset[str], frozenset[str]]:
    old, new = set[str](), set[str]()
    for trigger, pattern in _DENIALS:
        if trigger not in norm or (trigger in _WAYS and _STRONG.search(norm) is None):
            continue
        for match in pattern.finditer(norm):
            groups = match.groupdict()
            old |= _terms_of(groups["old"])
            new |= _terms_of(groups.get("new") or "")
    return frozenset(old), frozenset(new)


def _terms_of(text: str) -> set[str]:
    text = text.replace("·", ".").replace("¸", ",")
    return {each.term for each in _tokens(text) if _is_noun(each) or each.kind not in {"", "unit", "punctuation"} or each.term[0] == "="}


# --- decision ------------------------------------------------------------------------------------

Change = Literal["replaces", "touches", "unrelated"]


@lru_cache(_CACHED)
def compare(newer: str, older: str) -> Change:
    """Return what a later statement is to an earlier one of the same speaker."""
    if max(len(newer), len(older)) > MAX_CHARS or newer == older:
        return "unrelated"
    theirs = _read(older)
    found: Change = "unrelated"
    for text in dict.fromkeys((newer, *_parts(newer))):
        if text.rstrip().endswith("?"):
            continue
        change = _compare(_in_words_of(_read(text), theirs), theirs)
        if change == "replaces":
            return change
        found = change if change != "unrelated" else found
    return found


def _parts(text: str) -> Iterator[str]:
    """Yield the sentences of a text, and the clauses that have a subject."""
    for sentence in _SENTENCE.split(_TITLE.sub("", text)):
        yield sentence
        for clause in re.split(r"[,:](?=\s)", sentence):
            if (said := _read(clause)).subject or said.is_first:
                yield clause


def _in_words_of(mine: _Clause, theirs: _Clause) -> _Clause:
    """Return the later statement with the earlier one's form of misspelt and shortened words."""
    aliases = {
        term: other
        for term in mine.nouns - theirs.nouns
        for other in theirs.nouns - mine.nouns
        if _is_form(term, other)
    }
    if not aliases:
        return mine

    def renamed(terms: frozenset[str]) -> frozenset[str]:
        return frozenset(aliases.get(term, term) for term in terms)

    return mine._replace(
        subject=renamed(mine.subject),
        nouns=renamed(mine.nouns),
        denied=renamed(mine.denied),
        given=renamed(mine.given),
        tokens=tuple(each._replace(term=aliases.get(each.term, each.term)) for each in mine.tokens),
    )


def _is_form(term: str, other: str) -> bool:
    """True if a term is the other misspelt, or the end of a compound (`meeting`, `teammeeting`)."""
    if min(len(term), len(other)) < _STEM_CHARS or not (term + other).isalpha():
        return False
    if other.endswith(term) and len(other) - len(term) > 1:
        return True
    if min(len(term), len(other)) <= _STEM_CHARS or term[0] != other[0] or term[-1] != other[-1]:
        return False
    if sorted(term) == sorted(other):
        return sum(a != b for a, b in zip(term, other, strict=True)) == 2  # noqa: PLR2004 - exchanged
    start = next((at for at, (a, b) in enumerate(zip(term, other, strict=False)) if a != b), 0)
    return term[start + 1 :] == other[start:] or term[start:] == other[start + 1 :] or (
        len(term) == len(other) and term[start + 1 :] == other[start + 1 :]
    )


def _compare(mine: _Clause, theirs: _Clause) -> Change:
    if _is_other(mine, theirs):
        return "unrelated"
    is_changed = _denies(mine, theirs) or _reverses(mine, theirs) or _gives_value(mine, theirs)
    if not is_changed:
        return "unrelated"
    return "touches" if _has_more(mine, theirs) or _differs(_BRIEF, mine, theirs) else "replaces"


def _differs(cue: re.Pattern[str], mine: _Clause, theirs: _Clause) -> bool:
    """True if the later statement has a cue that the earlier one has not."""
    is_german = _GERMAN.search(mine.text) is not None
    return any(
        match[0] not in theirs.text and not (is_german and match[0] == "also")
        for match in cue.finditer(mine.text)
    )


def _is_other(mine: _Clause, theirs: _Clause) -> bool:
    """True if both may be true: nothing shared, an addition, a plan, another person or qualifier."""
    if mine.terms.isdisjoint(theirs.terms) and not (mine.is_first and theirs.is_first):
        return True
    if _differs(_ADDS, mine, theirs) or _differs(_OPEN, mine, theirs):
        return True
    if mine.persons - theirs.persons:
        return True
    if mine.persons and not theirs.persons and theirs.is_first:
        return True
    if theirs.persons - mine.persons and (mine.is_first or mine.subject):
        return True
    if mine.is_third and theirs.is_first and not theirs.subject:
        return True
    return bool(mine.subject - theirs.terms - mine.given) or _is_qualified_otherwise(mine, theirs)


def _is_qualified_otherwise(mine: _Clause, theirs: _Clause) -> bool:
    """True if a shared word has other words in front: "web server" is no "mail server"."""
    new, old = _qualifiers(mine), _qualifiers(theirs)
    heads = new.keys() & old.keys()
    if _STRONG.search(mine.text):
        heads &= (theirs.subject | mine.subject) or heads  # others are the value
    return any(new[word] - theirs.terms and old[word] - mine.terms for word in heads)


def _qualifiers(clause: _Clause) -> dict[str, set[str]]:
    """Return for each word the words directly in front of it."""
    found: dict[str, set[str]] = {}
    before = None
    for each in clause.tokens:
        if _is_noun(each):
            known = found.setdefault(each.term, set())
            if before is not None:
                known.add(before)
        before = each.term if _is_noun(each) else None
    return found


def _denies(mine: _Clause, theirs: _Clause) -> bool:
    """True if the later statement names what the earlier one says as no longer true."""
    if (mine.denied & mine.nouns) - theirs.nouns:
        return False  # of a part, or of another scope
    denied_verbs = mine.denied & mine.verbs - {_USE}
    if denied_verbs and theirs.verbs and denied_verbs.isdisjoint(theirs.verbs):
        return False
    hit = mine.denied & theirs.value
    if theirs.value - theirs.verbs <= mine.terms:  # "Paul is our adviser": the value comes first
        hit = mine.denied & theirs.terms - (mine.subject & theirs.subject)
    if not hit or (theirs.name and theirs.name not in mine.terms):
        return False
    return len(theirs.nouns - mine.nouns) <= _MISSING + len(hit)


_MISSING = 2


def _reverses(mine: _Clause, theirs: _Clause) -> bool:
    """True if one likes what the other dislikes."""
    new, old = _liking(mine), _liking(theirs)
    liked = (mine.nouns | mine.verbs) - {_LIKE}
    if not new or not old or new == old or liked - theirs.terms:
        return False
    rest = theirs.nouns - mine.nouns
    return bool(liked) and len(rest) <= (1 if _STRONG.search(mine.text) else 0)


def _liking(clause: _Clause) -> int:
    """Return 1 of what is liked, -1 of what is disliked, 0 of neither."""
    words = [each.plain for each in clause.tokens]
    is_denied = not {"not", "no", "never", "nicht", "kein", "keine", "keinen", "nie", "longer"}.isdisjoint(words)
    if not _DISLIKES.isdisjoint(words):
        return 1 if is_denied else -1
    if _LIKE in clause.verbs:
        return -1 if is_denied else 1
    return 0


_SINGLE = frozenset(f"={_GROUP[verb]}" for verb in ("live", "work", "start", "end"))
_IS = _any_of("is", "are", "ist", "sind")
_LIKE, _USE = f"={_GROUP['like']}", f"={_GROUP['use']}"


def _gives_value(mine: _Clause, theirs: _Clause) -> bool:
    """True if the later statement gives another value about the same subject."""
    if not _has_same_subject(mine, theirs):
        return False
    is_strong, is_weak = _STRONG.search(mine.text) is not None, _WEAK.search(mine.text) is not None
    changed = _changed_kinds(mine, theirs)
    if changed:
        return _gives_slot(mine, theirs, changed, is_strong=is_strong, is_weak=is_weak)
    if not (is_strong or is_weak) or mine.slots.keys() - theirs.slots.keys() - {"daytime"}:
        return False
    return _gives_words(mine, theirs, is_strong=is_strong)


def _has_same_subject(mine: _Clause, theirs: _Clause) -> bool:
    if theirs.name and theirs.name not in mine.terms:
        return False
    if mine.subject:
        return not mine.subject.isdisjoint(theirs.subject or theirs.terms)
    if not theirs.subject.isdisjoint(mine.terms):
        return True
    shared = (mine.nouns & theirs.nouns) or (mine.verbs & theirs.verbs)
    return bool(shared) and (mine.is_first or not theirs.is_first)


def _changed_kinds(mine: _Clause, theirs: _Clause) -> list[str]:
    return [
        kind
        for kind, old in theirs.slots.items()
        if (new := mine.slots.get(kind, frozenset()) - mine.denied | (mine.slots.get(kind, frozenset()) & mine.given)) and new != old and not new & old
    ]


def _gives_slot(
    mine: _Clause, theirs: _Clause, changed: Sequence[str], *, is_strong: bool, is_weak: bool
) -> bool:
    """Decide for a value that has a kind."""
    added = mine.slots.keys() - theirs.slots.keys() - {"daytime"}
    new = mine.nouns - theirs.nouns - mine.given - mine.denied
    old = theirs.nouns - mine.nouns
    if "id" in changed:
        new, old = new - mine.slots["id"], old - theirs.slots["id"]
    if is_strong:
        return len(new) <= _MISSING and len(old) <= _MISSING
    is_bundle = mine.slots.keys() == theirs.slots.keys() and mine.subject
    if (len(changed) > 1 and not (is_weak and is_bundle)) or added:
        return False
    if is_weak and len(new) <= 1 and _lead(mine, new) == "":
        is_same_verb = not (mine.verbs and theirs.verbs) or mine.verbs & theirs.verbs
        has_common = mine.nouns & theirs.nouns or not old
        return bool(is_same_verb and has_common) and len(old) <= _MISSING
    if new or old or mine.verbs != theirs.verbs or changed[0] not in {"time", "id"}:
        return False
    if changed[0] == "time":  # of a state, not of an event ("has an interview at 11")
        return bool(mine.verbs & _SINGLE) or _IS.search(mine.text) is not None
    return all("/" in value or "." in value for value in mine.slots["id"] | theirs.slots["id"])


def _gives_words(mine: _Clause, theirs: _Clause, *, is_strong: bool) -> bool:
    """Decide for a value in words."""
    new = mine.nouns - theirs.nouns - mine.denied
    old = theirs.nouns - mine.nouns
    if not new or not old or _LIKE in mine.verbs & theirs.verbs:
        return False
    has_form = _lead(mine, new) == _lead(theirs, old)
    if is_strong:
        return has_form or _lead(theirs, old) in {"with", "place"}
    if theirs.name and not theirs.verbs and not _lead(theirs, old):
        return False  # one has many properties: "Ben is a doctor", "Ben is married now"
    is_single = bool(mine.verbs & _SINGLE) and not mine.subject and not theirs.subject
    is_same = bool(mine.subject & theirs.subject) or (is_single and mine.is_first)
    return has_form and mine.verbs == theirs.verbs and is_same


def _lead(clause: _Clause, terms: frozenset[str]) -> str:
    """Return what stands in front of the first of the words: a preposition's class, or nothing."""
    before = ""
    for each in clause.tokens:
        if each.term in terms and _is_noun(each):
            if before in _PLACE_PREPOSITIONS:
                return "place"
            if before in {"as", "als"}:
                return "as"
            return "with" if before in {"with", "mit", "by", "via", "from", "von", "bei", "for", "fuer"} else ""
        if each.plain not in {"the", "a", "an", "der", "die", "das", "den", "dem", "ein", "einen", "einem", "einer"}:
            before = each.plain
    return ""


def _has_more(mine: _Clause, theirs: _Clause) -> bool:
    """True if the earlier statement has a part that the later one says nothing about."""
    parts = [part for part in _PART.split(f" {theirs.text} ") if part and part.strip()]
    if len(parts) == 1:
        return False
    said = (mine.terms | mine.denied) - theirs.subject
    kinds = set(_changed_kinds(mine, theirs))
    for part in parts:
        tokens = [each for each in _tokens(part) if each.kind not in {"punctuation", "unit"}]
        terms = {each.term for each in tokens if _is_noun(each) or each.term[0] == "="} - theirs.subject
        values = {each.kind for each in tokens if each.kind}
        nouns = {term for term in terms if term[0] != "="}
        if (terms or values) and (nouns or terms).isdisjoint(said) and not values & kinds:
            return True
    return False
