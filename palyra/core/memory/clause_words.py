# ruff: noqa: RUF001 - users type typographic quotes
"""Words and patterns by which a statement is taken apart (`clauses`) and compared (`changes`).

English and German, folded: small letters, umlauts as two letters.
"""

import re

FOLD = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "’": "'", "`": None, '"': None, "“": None,
                       "”": None, "„": None})  # fmt: skip


HYPHEN = re.compile(r"(?<![^\W\d_]-)(?<=[^\W\d_]{3})-(?=[^\W\d_]{3})(?!\w*-)")


def fold(text: str) -> str:
    return HYPHEN.sub(" ", text).casefold().translate(FOLD)


def words(text: str) -> frozenset[str]:
    return frozenset(fold(text).split())


def any_of(*patterns: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{fold('|'.join(patterns))})(?!\w)")


# --- words ---------------------------------------------------------------------------------------

FIRST = words(
    "i me my mine myself we us our ours ourselves user ich mich mir mein meine meinem meinen meiner wir uns"
    " unser unsere unserem unseren unserer unserm unsern nutzer benutzer im ive id ill i'm i've i'd i'll we're"
    " we've we'll we'd were bin hab habe haben habs"
)
FUNCTION = words(
    "a an the this that these those and or of to in on at by for with from as into onto over via per about"
    " around up out off down it its it's he she they them his her their him there here is are was were be been"
    " being am has have had do does did doing done will would can could shall should may might must so just"
    " really very quite pretty much still already all any some than then too also s t re ve ll d m what which who"
    " but if not no now get gets got let please yes yeah ok okay well oh hey hi btw fyi ah um"
    " ein eine einem einen einer eines der die das dem den des und oder von zu zum zur in im an am auf bei beim"
    " fuer mit aus nach als er sie es ihm ihr ihn ihre ihrem ihren ist sind war waren sein bin bist seid hat"
    " habe haben hatte hatten wird werden wurde wurden worden kann koennen so sehr noch schon auch da dort hier man"
    " sich ja doch mal eben halt nur aber ueber um bis ab seit pro nicht kein keine keinen keinem keiner jetzt nun"
    " dass wie was der uns euch zustaendig verantwortlich responsible charge dabei aktiv uebers ums vors noch pm o'clock jeden jede jedes jedem hoechstens max maximal consists bekommt kriegt erhaelt ne nen nem ner fuern fuers later newer above or uebrigens lange lang ewig long sadly unfortunately luckily leider everywhere dazu dir stell vor after every due done etwa erst immer total gern gerne wirklich echt super komplett absolut wieder again always only bitte btw naja ach also denn haetten waere ins ans vom hab habs"
)
# Words of a change and of its time, which are neither subject nor value.
CHANGE_WORDS = words(
    "no longer not any more anymore now nowadays currently meanwhile recently lately finally since starting"
    " effective instead rather actually correction update updated changed change changes moved move moves moving"
    " switched switch switching switches replaced replace replaces migrated migrate renamed rename converted"
    " changed swapped swap upgraded upgrade downgraded bumped bump raised raise lowered lower reduced increased"
    " increase dropped cut extended shortened postponed rescheduled pushed brought forward back gone left stopped"
    " stop quit gave given giving up ditched traded retired sold cancelled canceled became become turned turns come used new"
    " news last ago these from to today yesterday turns sorry wrong"
    " previously formerly before earlier everyone everything completely entirely finally settled went going go"
    " mehr laenger sondern statt stattdessen anstatt anstelle ersetzt ersetzen abgeloest loest umbenannt umgezogen"
    " gezogen umgestiegen umgestellt umgeschult gewechselt wechsel wechseln gewandert verlegt verschoben vorverlegt geaendert"
    " aendert aendern erhoeht gesenkt reduziert angehoben verkuerzt verlaengert gekuendigt aufgehoert aufgegeben"
    " abgeschafft verkauft migriert gestiegen gesunken korrektur eigentlich inzwischen mittlerweile sofort kuenftig"
    " neu neue neuer neues neuen neuem frueher vorher seitdem letzte letzten letzter gestern heute"
    " heutzutage zwischenzeitlich endlich komplett ganz hoch runter geworden stimmt falsch raus weg zieht ziehen"
)
# Verbs of one group are one verb.
_VERBS = """
live lives living lived reside resides based settled moved relocated wohne wohn wohnhaft wohnt wohnen wohnst
lebe lebt leben gezogen umgezogen
| work works working worked job employed joined arbeite arbeitet arbeiten angestellt jobbe jobbt
| use uses used using utilise utilizes nutze nutz nutzt nutzen benutze benutz benutzt benutzen verwende
verwendet verwenden rely relies setze setzen setzt nehme nehmen nimmt
| run runs running laeuft hosted gehostet liegt liegen sits sit sitzt sitzen lies deployed deploy
deploys
| cost costs kostet kosten price priced preis charges charge zahle zahlen zahlt pay pays fee rent
rents miete
| start starts starting begin begins opens open beginnt beginnen startet starten faengt oeffnet
| end ends ending closes close finishes finish endet enden schliesst
| like likes liked love loves loved enjoy enjoys prefer prefers preferred favour favours fond mag
magst moegen liebe liebt bevorzuge bevorzugt gern gerne
| drive drives driving fahre fahr faehrt fahren ride rides
| eat eats eating esse ess isst
| drink drinks drinking trinke trink trinkt trinken
| call calls called named name names heisst heissen nennt nennen
| meet meets treffe treffen trifft trefft
| study studies studying studiere studiert
| take takes taking dauert dauern lasts last
| listen listens lauscht hoert
| allow allows permit permits erlaubt
| keep keeps hold holds stay stays behaelt bleibt bewahrt
| handle handles macht machen mache erledigt betreut
| need needs requirement require requires braucht benoetigt
| smoke smokes smoked smoker rauche raucht raucher raucherin
| play plays spiele spiel spielt spielen
| go goes gehe geh geht gehen
| train trains trainiere trainiert
| write writes written schreibe schreibt schreiben geschrieben
| send sends schicke schickt schicken sende sendet
| belong belongs gehoert gehoeren
| lead leads leitet leite manages manage managed verantwortet kuemmert responsible owns own
| read reads lese liest
| speak speaks spreche spricht
| own besitze besitzt
| store stores stored speichert speichern lagern lagert
| pick picks hole holt abhole
| teach teaches unterrichte unterrichtet
| ship ships liefert liefern delivered
| book books
| wear wears trage traegt
| weigh weighs wiegt
| buy buys kaufe kauft kaufen
"""
VERB_GROUPS = tuple(group.split() for group in _VERBS.split("|"))
GROUP = {word: number for number, group in enumerate(VERB_GROUPS) for word in group}
TIES = words(
    "get does do did want wants wanted moechte moechten wuenscht traded died retired lost should must soll sollen muss muessen gets went turned is are was were be been has have had will can ist sind war waren wird werden bin hat habe haben wurde wurden"
    " i'm we're i've we've it's that's equals means heisst moved moves switched changed replaced renamed migrated"
    " became become went goes costs stopped quit gave raised lowered bumped upgraded swapped dropped ditched"
    " got gets wechselt zieht zog kostet rescheduled postponed pushed increased reduced"
)
DISLIKES = words(
    "hate hates dislike dislikes avoid avoids detest detests loathe loathes despise hasse hasst verabscheue"
    " meide meidet vermeide vermeidet allergic allergy allergies allergisch allergie quit stopped stop abgewoehnt"
)
KIN = words(
    "mother mom mum mama father dad papa sister brother wife husband boyfriend girlfriend son daughter kid kids"
    " child children uncle aunt cousin grandma grandpa grandmother grandfather friend neighbour neighbor flatmate"
    " roommate coworker parents nephew niece twin ex mutter vater schwester bruder sohn tochter kind kinder onkel"
    " tante oma opa freund freundin nachbar nachbarin mitbewohner mitbewohnerin eltern neffe nichte schwager"
    " schwaegerin cousine boy girl junge maedchen"
)
ROLES = words(
    "boss manager colleague partner teacher customer client chefin kollege kollegin kunde kundin lehrer lehrerin"
)
LEADS = words("in at on to with for im am um auf mit bei zu nach fuer von bis")
SCOPES = words("in for on at bei im fuer am beim within")
IDENTITY = re.compile(
    r"^(?:My|Our|Mein|Unser|The user's|Der Lieblings|Die Lieblings)\w*\s|\s(?:is|are|ist|sind)\s(?:(?:a|an|the|ein|eine|der|die|das)\s)?[A-ZÄÖÜ\d]|\sis\s[a-z]+\d"
)
BE = words("is are was were be been ist sind war waren bin i'm we're it's that's =")
HAVE = words("has have had hat habe haben")
NOT = words("isnt dont doesnt wasnt arent cant wont didnt havent hasnt")
NOMINATIVES = words("i we ich wir i'm we're i've we've")
THIRD = words("he she his her him er ihm ihn")
NEGATIONS = words(
    "not no never without cannot neither nor none nicht kein keine keinen keiner nie niemals ohne nichts"
)
# Words that two statements of the same may differ in; any other one ("only", "after", "can") is a part of
# what is said.
EMPTY = words(
    "a an the this that these those and of in on at by for with as it its it's is are was were be been being am has have"
    " had do does did will would should must so just really very quite pretty please there here every each per what which"
    " who to get gets got name names mean means der die das den dem des ein eine einem einen einer eines und von zu zum"
    " zur im ins an auf bei beim fuer mit aus als er sie es ist sind war waren sein bin bist hat habe haben hatte wird"
    " werden wurde wurden soll sollen muss muessen so sehr man sich dass jede jeden jedes jedem pro um uhr pm o'clock bitte"
    " immer lang gern gerne ins ans vom etwa also dazu da hier los we're i'm i've we've s consists bekommt kriegt erhaelt"
)
GENERIC = words(
    "team company everyone people thing things stuff way place time value setting firma leute sache sachen"
    " wert zeit uhr clock euro euros eur dollar dollars usd percent prozent minutes minute hours hour stunden"
    " minuten person personen"
)
PLACE_PREPOSITIONS = words(
    "in at on near bei im ins auf am nach to into nahe neben next onto zu zur zum"
)
UNITS = {
    **dict.fromkeys(words("minute minutes min mins minuten"), "min"),
    **dict.fromkeys(words("seconds secs sekunden sekunde"), "s"),
    **dict.fromkeys(words("hour hours h hrs stunde stunden"), "h"),
    **dict.fromkeys(words("day days tag tage tagen"), "day"),
    **dict.fromkeys(words("week weeks woche wochen"), "week"),
    **dict.fromkeys(words("euro euros eur €"), "eur"),
    **dict.fromkeys(words("dollar dollars usd $"), "usd"),
    **dict.fromkeys(words("percent prozent %"), "%"),
    **dict.fromkeys(words("mg"), "mg"),
    **dict.fromkeys(words("kg kilo kilos"), "kg"),
    **dict.fromkeys(words("km"), "km"),
    **dict.fromkeys(words("gb mb tb ms line lines zeile zeilen"), "size"),
}
NUMBER_WORDS = {
    word: str(number)
    for number, words in enumerate(
        ["one eins", "two zwei", "three drei", "four vier", "five fuenf", "six sechs", "seven sieben", "eight acht", "nine neun", "ten zehn", "eleven elf", "twelve zwoelf", "thirteen dreizehn", "fourteen vierzehn", "fifteen fuenfzehn", "sixteen sechzehn", "seventeen siebzehn", "eighteen achtzehn", "nineteen neunzehn", "twenty zwanzig"],
        1,
    )
    for word in words.split()
} | {"thirty": "30", "dreissig": "30", "forty": "40", "vierzig": "40", "fifty": "50", "fuenfzig": "50",
     "hundred": "100", "hundert": "100"}  # fmt: skip
DAY_NAMES = {
    form: short
    for short, forms in {
        "mon": "monday mondays montag montags mon", "tue": "tuesday tuesdays dienstag dienstags tue tues",
        "wed": "wednesday wednesdays mittwoch mittwochs wed", "thu": "thursday thursdays donnerstag donnerstags thu thurs",
        "fri": "friday fridays freitag freitags fri", "sat": "saturday saturdays samstag samstags sonnabend",
        "sun": "sunday sundays sonntag sonntags",
    }.items()
    for form in forms.split()
}  # fmt: skip
MONTH_NAMES = words(
    "january february march april june july august september october november december januar februar maerz mai"
    " juni juli oktober dezember"
)
RATES = words(
    "hourly daily weekly biweekly fortnightly monthly quarterly yearly annually once twice stuendlich taeglich"
    " woechentlich monatlich quartalsweise jaehrlich einmal zweimal dreimal"
)
DAYTIMES = words(
    "nights morning mornings afternoon evening evenings night noon midnight morgens mittags nachmittags abends nachts"
    " mittag abend vormittag vormittags nachmittag"
)
# Words that are values: term and kind.
NAMED_VALUES = {
    **{word: (word.rstrip("s"), "daytime") for word in DAYTIMES},
    **{word: (word, "rate") for word in RATES},
    "nightly": ("night", "daytime"),
    **{word: (word[:3], "month") for word in MONTH_NAMES},
    **{word: (short, "day") for word, short in DAY_NAMES.items()},
    **dict.fromkeys(words("noon midday mittag mittags"), ("12:00", "time")),
    **dict.fromkeys(words("midnight mitternacht"), ("0:00", "time")),
}

# --- cues ----------------------------------------------------------------------------------------

STRONG = any_of(
    r"no longer", r"not? [^.;]{0,60}?any ?more", r"any ?more", r"any longer", r"replac(?:ed|es|ing)", r"renam(?:ed|ing)",
    r"(?:moved?|moving|moves|migrated?|switch(?:ed|es|ing)?|changed?|converted|relocated|rescheduled|postponed|shifted|swapped)",
    r"instead(?: of)?", r"rather than", r"in place of", r"dropped", r"ditched", r"retired", r"gave up", r"given up",
    r"quit", r"stopped", r"got rid of", r"phased out", r"went (?:from|up|down|off|back|over)", r"gone (?:up|down|off)",
    r"correction", r"actually", r"used to", r"became", r"become", r"pushed (?:back|to|out)", r"brought forward",
    r"down to", r"up to", r"raised", r"lowered", r"increased", r"reduced", r"decreased", r"bumped", r"upgraded", r"downgraded", r"extended",
    r"shortened", r"turned", r"grew out of", r"is (?:gone|out|history|dead)(?=$|\s*[,.;])", r"supersede[sd]?", r"sold", r"cancelled", r"canceled",
    r"was wrong", r"i meant", r"scratch that", r"formerly", r"n't \w+ [^.;]{1,60} these days", r"not true any",
    r"took over", r"takes over", r"taken over", r"handed (?:over|to)", r"passed to", r"left",
    r"nicht mehr", r"nicht laenger", r"kein\w* [^.;]{0,60}?mehr", r"sondern", r"statt", r"stattdessen", r"anstatt", r"anstelle",
    r"ersetz(?:t|en)", r"abgeloest", r"loest [^.;]{1,60} ab", r"umbenannt", r"heisst (?:jetzt|nun|ab)", r"umgezogen", r"umgestiegen", r"umgestellt",
    r"(?:ge)?wechsel(?:t|n|e)?", r"verlegt", r"verschoben", r"vorverlegt", r"geaendert", r"aendert sich", r"erhoeht", r"gesenkt", r"reduziert",
    r"angehoben", r"verkuerzt", r"verlaengert", r"gekuendigt", r"aufgehoert", r"aufgegeben", r"abgeschafft", r"verkauft", r"migriert",
    r"gestiegen", r"gesunken", r"korrektur", r"eigentlich", r"stimmt nicht", r"war falsch", r"frueher", r"abgewoehnt", r"uebernommen",
    r"gezogen", r"zieht", r"um auf", r"geworden", r"uebernimmt", r"vertippt", r"doch (?:lieber|nicht)", r"lieber doch",
    r"->", r"=>", r"→", r"hochgesetzt", r"runtergesetzt", r"heraufgesetzt", r"herabgesetzt", r"ausgetauscht", r"getauscht", r"cut", r"re(?:booked|licensed|assigned|branded|painted|arranged)", r"aufgestockt", r"auf [^.;]{1,20} gelegt", r"vorgezogen", r"kaum (?:noch|mehr)", r"ported", r"portiert", r"rewrote", r"rewritten", r"umgeschult", r"come to (?:love|like)",
    r"(?:grown|learned|learnt) to (?:love|like)",
)  # fmt: skip
WEAK = any_of(
    r"now", r"nowadays", r"these days", r"by now", r"meanwhile", r"since (?!then)\w+", r"as of", r"from \w+ on(?:wards?)?",
    r"starting (?:from )?\w+", r"recently", r"lately", r"finally", r"turns out", r"(?:my|our|the|a) new(?= (?!project|client|customer|team|server|repo|course|book|feature|cat|dog|child|baby|website))", r"new \w+ (?:is|are)",
    r"currently", r"jetzt", r"nun", r"inzwischen", r"mittlerweile", r"ab sofort", r"ab \w+", r"seit(?:dem| \w+)", r"kuenftig", r"neuerdings",
    r"^neue[srnm]? \w+", r"^new \w+",
    r"(?:mein|unser|d|n|ein)\w{0,3} neue[srnm]?(?= (?!projekt|kund|team|server|repo|kurs|buch|katze|hund|kind))", r"neue[srnm]? \w+ (?:ist|sind)", r"seit kurzem", r"heutzutage", r"update", r"no,",
)  # fmt: skip
ADDS = any_of(
    r"also", r"too(?=$|\s*[,.;!])", r"as well", r"in addition", r"additionally", r"another", r"(?:the|my|our) other", r"andere[srnm]?", r"a second", r"besides", r"apart from", r"on top",
    r"sometimes", r"occasionally", r"both", r"plus", r"either", r"additional", r"alongside", r"next to", r"once in a while", r"now and then",
    r"auch", r"zusaetzlich", r"ausserdem", r"ebenfalls", r"ebenso", r"neben", r"manchmal", r"ab und zu", r"noch ein\w*", r"sowohl", r"weitere[srnm]?",
    r"zweite[srnm]?", r"beide", r"dazu", r"gelegentlich", r"extra", r"just as much", r"genauso", r"still", r"weiterhin", r"immer noch", r"nach wie vor",
    r"same as before", r"unchanged", r"unveraendert",
)  # fmt: skip
OPEN = any_of(
    r"if", r"whether", r"maybe", r"perhaps", r"might", r"would", r"could", r"should we", r"considering", r"thinking (?:about|of)", r"plan(?:s|ning)? to",
    r"wants? to", r"wish\w*", r"hope to", r"hoping", r"wondering", r"dream(?:ed|t|s)?", r"imagine", r"suppose", r"almost", r"nearly", r"were to", r"supposed to",
    r"wonder", r"someday", r"one day", r"talked about", r"discussing", r"thought about", r"tempted", r"rumou?r\w*", r"joke", r"joking", r"proposed?", r"suggest\w*",
    r"wenn", r"falls", r"ob", r"vielleicht", r"koennte\w*", r"wuerde\w*", r"ueberleg\w*", r"moechte\w*", r"plan(?:e|en|t)", r"waere\w*", r"haette\w*(?! (?:\w+ ){0,4}(?:lieber|gern))",
    r"angenommen", r"beinahe", r"fast", r"irgendwann", r"eventuell", r"schlaegt vor", r"vorgeschlagen", r"geruecht\w*", r"traum\w*", r"scherz", r"eigentlich wollte",
    r"diskutier\w*", r"denk\w* (?:darueber|drueber)", r"says?", r"said", r"claims?", r"told", r"sagt\w*", r"meint\w*", r"behauptet\w*", r"erzaehlt\w*",
)  # fmt: skip
BRIEF = any_of(
    r"today", r"tonight", r"tomorrow", r"this (?:week|time|once|morning|afternoon|evening|month|monday|tuesday|wednesday|thursday|friday|saturday|sunday)",
    r"just this", r"for now", r"for once", r"temporar\w+", r"except\w*", r"for the (?:next|moment|time being)", r"(?<!from )next (?:week|monday|tuesday|wednesday|thursday|friday)",
    r"until", r"while", r"during", r"just for", r"only (?:for|on|this)", r"exceptionally", r"one[- ]off", r"last (?:time|night)", r"had (?!to)\w+", r"ate", r"drank", r"ordered", r"wore",
    r"trank", r"bestellt", r"gegessen", r"getrunken", r"yesterday", r"on holiday",
    r"heute", r"morgen", r"diese[ns]? (?:woche|mal|monat|montag|dienstag|mittwoch|donnerstag|freitag|samstag|sonntag)", r"ausnahmsweise", r"voruebergehend", r"einmalig", r"nur (?:fuer|am|diese\w*|heute)",
    r"ausser", r"bis", r"waehrend", r"(?<!ab )naechste\w? (?:woche|montag|dienstag|mittwoch|donnerstag|freitag)", r"erst ?mal", r"zur ?zeit", r"gestern", r"im urlaub",
)  # fmt: skip
CORRECTS = any_of("actually", "correction", "korrektur", "eigentlich", "i meant", "scratch that")
REASON = re.compile(
    r"(?:,\s*|\s+)(?:because|since (?:it|we|i|they|he|she|the|our|my|that)\b|so that|due to|weil|wegen|damit|denn"
    r"|as (?:it|we|i|they|the|our|my)\b|after (?:the|all|we|i|he|she|they|\w+ing)\b|nachdem|thanks to|thank god).*"
)
MONTH = "|".join(sorted((*MONTH_NAMES, "may")))
WHEN = (
    rf"(?:\d{{1,2}}\.?(?:st|nd|rd|th)?\s+)?(?:of\s+)?(?:{MONTH})(?:\s+\d{{1,2}}(?:st|nd|rd|th)?)?(?:,?\s+(?:19|20)\d\d)?"
    r"|(?:19|20)\d\d|\w*day|\w*tag|mittwoch|(?:the )?(?:week|month|year|spring|summer|autumn|winter|first)|woche|monat|jahr"
    r"|sommer|herbst|fruehjahr|fruehling|kurzem|today|heute|sofort|now|jetzt|gestern|yesterday|then|tomorrow|morgen|ersten"
)
FROM_WHEN = re.compile(
    r"(?<!\w)(?:(?:since|as of|starting(?: from)?|effective|beginning|seit|ab|zum|per|from)\s+"
    r"(?:the\s+|dem\s+|den\s+|letzte\w*\s+|last\s+|next\s+|early\s+|late\s+|mid\s+|anfang\s+|mitte\s+|ende\s+|naechste\w*\s+|dies\w*\s+|this\s+)*"
    rf"(?:{WHEN})(?:\s+(?:on|onwards?|an))?"
    r"|(?:last|letzte\w*|vergangene\w*|vorige\w*)\s+(?:week|month|year|woche|monat|jahr|summer|winter|spring|autumn|sommer|herbst)"
    r"|(?:\w+\s+)?(?:days?|weeks?|months?|years?)\s+ago|vor\s+\w+\s+(?:tagen|wochen|monaten|jahren)|vor\s+(?:einer woche|einem monat)|seit\s+(?:dem|der|meine[mr]|unsere[mr])\s+\w+)(?!\w)"
)
TOKEN = re.compile(
    r"https?://\S+?(?=[,;)]?(?:\s|$|[.!?](?:\s|$)))|[\w.+-]{1,64}@[\w.-]+\w|(?<!\S)\.\w[\w.]*\w|[~/]?[\w-]+(?:[./:_\\-][\w-]+)+/?|\d+(?:[.,:]\d+)*(?!\w)|\w+(?:'\w+)*|[%€$]|->|=>|→|[,;:.!?=]"
)
# Each with a word without which it cannot match; `OLD` begins its clause.
DENIALS = tuple(
    (
        trigger,
        re.compile(
            (r"(?<!\w)" if pattern[0].isalpha() and not pattern.startswith("OLD") else "")
            + pattern.replace("OLD", r"(?:^|(?<=[,;.] ))(?P<old>[^,;.]+?)")
        ),
    )
    for trigger, pattern in (
        ("no longer", r"OLD (?:is|are) no longer (?:wanted|needed|used|valid|in use|allowed|available|supported|required)"),
        ("give ", r"give (?P<old>[^,;.]+?) away"), ("gave ", r"gave (?P<old>[^,;.]+?) (?:away|up)"),
        ("no longer", r"no longer (?P<old>[^,;.]+?)(?= but |$|[,;.])"),
        (" any", r"(?:not|never|cannot|nobody|no one|no) (?P<old>[^,;.]*?) (?:any ?more|any longer)"),
        ("no ", r"(?<!\w)no (?P<old>[^,;.]+?) (?:for (?:me|us)|after all|from now on)"),
        (" since", r"not (?P<old>[^,;.]+?) since"),
        ("gegen ", r"OLD gegen (?P<new>[^,;.]+?) (?:ge|ein|aus)\w*tauscht"),
        ("these days", r"(?:not|never) (?P<old>[^,;.]*?) these days"),
        (" but ", r"not (?P<old>[^,;.]{1,80}?) (?:, )?but (?P<new>.+)"),
        ("sondern", r"nicht (?P<old>[^,;.]{1,80}?) (?:, )?sondern (?P<new>.+)"),
        ("replac", r"replac(?:ed?|ing) (?P<old>[^;.]+?) (?:by|with) (?P<new>.+)"),
        ("replaced", r"replaced (?P<old>[^,;.]+?)(?=$|[,;.])"),
        ("replaced", r"OLD (?:was|were|got|been|is|are|gets) (?:now |just |recently |finally )?replaced (?:by|with) (?P<new>.+)"),
        ("superseded", r"OLD (?:was|were|been|is|are) superseded by (?P<new>.+)"),
        ("from ", r"(?<!\w)from (?P<old>[^,;.]+?) (?:over to|back to|to|onto|into) (?P<new>.+)"),
        ("instead of", r"instead of (?P<old>[^,;.]+)"),
        ("rather than", r"rather than (?P<old>[^,;.]+)"),
        ("in place of", r"in place of (?P<old>[^,;.]+)"),
        ("statt ", r"(?<!\w)(?:an)?statt (?P<old>[^,;.]+)"),
        ("anstelle", r"anstelle (?:von )?(?P<old>[^,;.]+)"),
        ("renam", r"renam(?:ed?|ing) (?P<old>[^;.]+?) (?:to|into|as) (?P<new>.+)"),
        ("renamed", r"OLD (?:was|were|been|is|got) renamed (?:to |as |into )?(?P<new>.+)"),
        ("called", r"OLD (?:is|are|goes) (?:now )?(?:called|named|known as|by) (?P<new>.+)"),
        *(
            (verb, rf"{verb} (?:up )?(?:on |with |out of )?(?P<old>[^,;.]+?)(?= for | in favou?r of | and |$|[,;.])")
            for verb in (
                "dropped", "ditched", "retired", "gave up", "given up", "stopped", "quit", "got rid of", "phased out",
                "deleted", "gave away", "threw out", "threw away", "dropping", "ditching", "giving up", "stopping", "quitting", "selling", "leaving", "cancelling", "sold", "canceled", "cancelled", "abandoned", "left", "went off", "gone off", "done with", "moved away from",
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
        *((f" {gone}", rf"OLD (?:is|are) {gone}(?=$| for good| now|[,;.])") for gone in ("gone", "history", "dead", "out", "retired", "discontinued")),
        ("kein", r"kein\w* (?P<old>[^,;.]+?) mehr"),
        ("kaum ", r"(?:^|(?<=[,;.] ))(?P<old>[^,;.]*?kaum (?:mehr|noch)[^,;.]*?)(?=$|[,;.])"),
        ("nicht ", r"(?:^|(?<=[,;.] ))(?P<old>[^,;.]*?nicht (?:mehr|laenger)[^,;.]*?)(?= sondern |$|[,;.])"),
        ("durch ", r"OLD durch (?P<new>[^,;.]+?) (?:ersetzt|abgeloest|ausgetauscht)"),
        (" von ", r"OLD (?:wurde|wurden|wird|ist) von (?P<new>[^,;.]+?) (?:ersetzt|abgeloest)"),
        ("ersetzt", r"(?P<new>[^,;.]+?) ersetzt (?P<old>[^,;.]+?)$"),
        ("loest", r"(?P<new>[^,;.]+?) loest (?P<old>[^,;.]+?) ab"),
        ("von ", r"(?<!\w)von (?P<old>[^,;.]+?) (?:auf|zu|zur|zum|nach|in|ins|aufs) (?P<new>.+)"),
        ("aus ", r"(?<!\w)aus (?:dem|der|den)? ?(?P<old>[^,;.]+?) (?:in|nach|zu|zum|zur|auf) (?P<new>.+)"),
        ("out of ", r"out of (?P<old>[^,;.]+?) (?:to|into|onto) (?P<new>.+)"),
        ("vom ", r"(?<!\w)vom (?P<old>[^,;.]+?) (?:auf|zu|zur|zum|nach|in|ins|aufs) (?P<new>.+)"),
        ("aufgehoert", r"(?:mit|beim) (?P<old>[^,;.]+?) aufgehoert"),
        ("aufgehoert", r"aufgehoert (?P<old>[^,;.]+?) zu \w+"),
        ("over ", r"(?P<new>[^,;.]+?) (?:took|takes|taken|taking) over (?:\w+ )?from (?P<old>[^,;.]+?)(?= as |$|[,;.])"),
        ("uebern", r"(?P<new>[^,;.]+?) (?:uebernimmt|uebernahm|hat) [^,;.]*?von (?P<old>[^,;.]+?)(?: uebernommen|$|[,;.])"),
        ("heisst", r"OLD heisst (?:jetzt|nun|ab sofort|inzwischen|mittlerweile) (?P<new>.+)"),
        ("umbenannt", r"OLD in (?P<new>[^,;.]+?) umbenannt"),
        *(
            (verb, rf"OLD {verb}(?= |$|[,;.])")
            for verb in ("abgeschafft", "abgeblasen", "abgebrochen", "abbestellt", "storniert", "verschenkt", "weggegeben", "aufgeloest", "called off", "geklaut", "gestohlen", "was stolen", "got stolen", "was sold", "shut down", "gekuendigt", "aufgegeben", "verkauft", "eingestellt", "abgeschaltet", "abgewoehnt",
                         "died", "passed away", "stepped down", "resigned", "retired", "moved on", "hat aufgehoert", "geht in rente")
        ),
        ("left", r"OLD (?:has )?left(?=$| us| for good| in | the (?:company|team|firm|band|project)|[,;.])"),
        ("quit", r"OLD quit(?=$| in | the |[,;.])"),
        ("ist ", r"OLD ist (?:\w+ ){0,2}(?:geschichte|weg|raus|passe|tot|in rente|gestorben|ausgeschieden)"),
        ("sind ", r"OLD sind (?:\w+ ){0,2}(?:geschichte|weg|raus|passe|tot|in rente|ausgeschieden)"),
        ("no more", r"no more (?P<old>[^,;.]+?)(?= for |$|[,;.])"),
        (" off ", r"(?:took|taken|got|am|are|i'm|we're|is|come) (?:me |us |it )?off (?P<old>[^,;.]+?)(?= in | on |$|[,;.])"),
        ("weg vo", r"weg vo[nm] (?P<old>[^,;.]+?)(?= in | am |$|[,;.])"),
        ("frueher", r"frueher (?P<old>[^,;.]+)"),
        ("frueher", r"(?P<old>(?:i|we|ich|wir) \w+ frueher [^,;.]+)"),
    )
)  # fmt: skip
PART = re.compile(r" (?:and|und|but|aber|while|whereas|sowie|as well as|&|plus) |[,;]")
GERMAN = any_of(r"der", r"das", r"ist", r"nicht", r"wir", r"ich", r"und", r"ein")
LIKING = any_of(
    r"warmed (?:up )?to",
    r"fond of",
    r"(?:a )?fan of",
    r"schmeck(?:t|en) mir",
    r"gefall(?:t|en) mir",
    r"gefaellt mir",
)
DISLIKING = any_of(
    r"can'?t stand",
    r"(?:fed up with|sick of|tired of|gone off)",
    r"nicht ausstehen",
    r"nicht leiden",
)
S_IS = re.compile(r"(?<=\w)'s(?=\s)")
CLOCK = re.compile(
    r"(?P<full>\d{1,2}) uhr (?P<rest>\d\d)(?!\w)|(?P<how>quarter to|quarter past|half past|viertel vor|viertel nach|halb) (?P<hour>\d{1,2}|\w+)"
)
TITLE = re.compile(r"(?<!\w)(?:mr|mrs|ms|dr|prof|herrn?|frau)\.?\s+(?=[a-z])", re.IGNORECASE)
LEAD_IN = re.compile(
    r"^\s*(?:actually|correction|korrektur|update|fyi|sorry|oops|no|nein|no,? wait|wait|hold on|scratch that|in fact|eigentlich|moment"
    r"|(?:that|this|it) (?:was|is) wrong|(?:das|es) (?:war|ist) falsch|my mistake|mein fehler)\s*[,:.!-]\s*"
)
SENTENCE = re.compile(r"(?<=[\w)])[.;!](?:\s+|$)|\n+")
ING_NOUNS = words("meeting training building writing booking planning")
SPEAKERS = words("i we ich wir user nutzer")
PLURAL_VERBS = words("are were have sind waren haben werden sollen muessen")
WAYS = (
    "from ",
    "von ",
    "vom ",
    "aus ",
    "out of ",
)  # nothing changes in "goes from main to staging"
SINGLE = frozenset(
    f"={GROUP[verb]}" for verb in ("live", "work", "start", "end", "meet", "cost", "study", "drive")
)
IS = any_of("is", "are", "ist", "sind")
# Without such a word a denied day may be one only: "I cancelled Friday's yoga".
FOR_GOOD = any_of(
    r"no longer",
    r"any ?more",
    r"any longer",
    r"no more",
    r"nicht mehr",
    r"nicht laenger",
    r"kein\w* [^.;]*mehr",
    r"sondern",
    r"instead",
    r"statt",
    r"now",
    r"jetzt",
    r"from",
    r"moved?",
    r"verlegt",
    r"verschoben",
    r"not [^.;]* but",
    r"rather than",
    r"used to",
    r"frueher",
)
# A rule about changes, which is none.
UNCHANGED = any_of(
    r"nichts (?:\w+ ){0,6}geaendert",
    r"nothing (?:\w+ ){0,6}change[sd]?",
    r"(?:nicht|nie|niemals|not|never|n't) (?:\w+ ){0,3}(?:geaendert"
    r"|ersetzt|verschoben|umbenannt|changed?|moved?|replaced?|renamed?)",
    r"without (?:\w+ ){0,4}change[sd]?",
    r"ohne (?:\w+ ){0,6}geaendert",
)
RESUMES = any_of("again", "wieder")
ALLOWS = any_of(r"darf\w*", r"duerf\w*", "may", "can", "ok", "okay", "fine", "welcome", r"kann\w*")
# Words of a task, which one person has at a time.
RESPONSIBLE = any_of(
    "zustaendig",
    "verantwortlich",
    "in charge",
    "responsible",
    r"leads?",
    r"handles?",
    "macht",
    r"runs?",
    r"manages?",
    r"maintains?",
    r"owns?",
    "leitet",
    "betreut",
    "kuemmert sich",
    r"\w+'s job",
    "uebernimmt",
    r"does",
    r"takes care",
)
# What a value is called: "the port changed" is about "listens on 3000".
ATTRIBUTES = words("port url ip link address adresse number nummer version")
STARTS, ENDS = (frozenset({f"={GROUP[verb]}"}) for verb in ("start", "end"))
# Verbs that say little beside what they are about: "we use X for Y", "Y runs on X", "Y is written in X".
PALE = frozenset(
    f"={GROUP[verb]}"
    for verb in ("use", "run", "start", "store", "keep", "write", "go", "end", "work", "live")
)
DIRECTIONS = words("to from into onto over than von vom nach zu zum zur als")
ASKS = any_of("please", "bitte")
ROLE = any_of(r"is (?:the|our|my)", r"ist (?:die|der|das|unser\w*|mein\w*)")
NAMED = f"={GROUP['called']}"
LIVE = f"={GROUP['live']}"
PLACED = frozenset(
    f"={GROUP[verb]}" for verb in ("live", "work", "run", "meet", "keep", "store", "train", "play")
)
LIKE, USE = f"={GROUP['like']}", f"={GROUP['use']}"
DERIVED = words("al er ing ion ation ung ment ly lich ship in")
ARTICLES = words(
    "the a an der die das den dem ein einen einem einer eine every all each jede jeden jedem alle my our unser unserer unserem"
)
LEAD_OF = {
    **dict.fromkeys(PLACE_PREPOSITIONS, "place"),
    **dict.fromkeys(words("with mit by via from von bei for fuer through per"), "with"),
    **dict.fromkeys(words("as als"), "as"),
}
