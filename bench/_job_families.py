"""Families of jobs whose person has a preference or knows a fact that no tool tells.

The sentences were written before anything was measured with them, and no rule was written from them.
"""

from typing import Literal, NamedTuple

Kind = Literal["fact", "preference", "once"]


class Family(NamedTuple):
    """Jobs of one kind; `values` are the values of the parameter and the words that mean each."""

    name: str
    kind: Kind
    values: dict[str, tuple[str, ...]]  # the first one is tried without further knowledge
    wanted: str
    said: str  # by the person when a job went wrong
    requests: tuple[str, str, str, str, str, str]


def _fact(name: str, guess: str, wanted: str, said: str, *requests: str) -> Family:
    one, two, three, four, five, six = requests
    values = {guess: (), wanted: (wanted,)}
    return Family(name, "fact", values, wanted, said, (one, two, three, four, five, six))


def _chosen(
    name: str, values: dict[str, tuple[str, ...]], wanted: str, said: str, *requests: str
) -> Family:
    one, two, three, four, five, six = requests
    return Family(name, "preference", values, wanted, said, (one, two, three, four, five, six))


FAMILIES = (
    _fact(
        "restore_dump", "db-main", "gannet-07",
        "The nightly dumps are written on gannet-07, not on the main database.",
        "Please restore last night's dump into the sandbox.",
        "The sandbox is stale, load the newest dump.",
        "I need Tuesday's data back, take it from the dump.",
        "Refresh the sandbox from the nightly dump before the demo.",
        "Can you get yesterday's dump in again? Somebody dropped a table.",
        "Dump into the sandbox please, then tell me how many customers it has.",
    ),
    _fact(
        "book_room", "Room A", "Kestrel",
        "Our weekly review is always held in Kestrel.",
        "Book the room for our weekly review on Thursday.",
        "The review moves to Friday this week, reserve the room.",
        "We need the usual room for the review.",
        "Put the weekly review into the calendar, with its room.",
        "Review next Monday at ten, room as ever.",
        "Reserve the review's room for the whole of March.",
    ),
    _fact(
        "order_flour", "Miller & Co", "Rotmühle",
        "Wir kaufen unser Mehl bei der Rotmühle.",
        "Bestell bitte 40 Kilo Mehl nach.",
        "Das Mehl reicht nur noch bis Samstag, bitte nachbestellen.",
        "Vor Ostern brauchen wir doppelt so viel Mehl.",
        "Mehl ist alle, kümmerst du dich?",
        "Die Backstube will 25 Kilo Mehl für Freitag.",
        "Bestellung Mehl, gleiche Menge wie zuletzt.",
    ),
    _fact(
        "send_invoice", "billing@example.org", "ap@lindqvist.example",
        "Lindqvist wants its invoices at ap@lindqvist.example.",
        "Send Lindqvist the invoice for March.",
        "The April invoice for Lindqvist is ready, mail it.",
        "Lindqvist has not had the invoice for the repairs yet.",
        "Please resend the last invoice to Lindqvist, they lost it.",
        "Invoice 311 goes to Lindqvist today.",
        "Final invoice for Lindqvist, then close the project.",
    ),
    _fact(
        "run_checks", "make test", "just verify",
        "In this project the checks are started with just verify.",
        "Are the checks green on this branch?",
        "Run the checks before I merge.",
        "I changed the parser, please check that nothing broke.",
        "Start the checks and tell me what fails.",
        "Once more the checks, with the new fixtures.",
        "Can you verify the branch?",
    ),
    _fact(
        "call_vet", "Dr. Smith", "Dr. Okonjo",
        "my vet is Dr. Okonjo by the way",
        "make an appointment at the vet for the mare, she is limping",
        "vaccination is due, get me a date at the vet",
        "tell the vet that the limp is back",
        "ask the vet if the wound may get wet",
        "the foal needs the vet this week",
        "cancel the vet tomorrow please",
    ),
    _fact(
        "park_machine", "Hof", "Feldscheune",
        "Der Mähdrescher steht bei uns über den Winter in der Feldscheune.",
        "Trag ein, wo der Mähdrescher abgestellt wird.",
        "Die Versicherung fragt nach dem Standort vom Mähdrescher.",
        "Wohin soll der Fahrer den Mähdrescher bringen?",
        "Schreib dem Monteur, wo er den Mähdrescher findet.",
        "Mähdrescher einwintern, Standort bitte mit angeben.",
        "Für die Inventur: Standort Mähdrescher.",
    ),
    _fact(
        "cite_case", "BGH", "OLG Celle",
        "In the Harms matter the decision that counts is the one of the OLG Celle.",
        "Draft the letter in the Harms matter and cite the decision.",
        "Harms again: add the citation to the reply.",
        "Which decision do we rely on in Harms? Put it into the brief.",
        "The brief for Harms lacks its main citation.",
        "Please cite the decision in the Harms settlement too.",
        "Last letter in the Harms matter, with the citation.",
    ),
    _chosen(
        "weather", {"fahrenheit": ("fahrenheit",), "celsius": ("celsius", "metric")}, "celsius",
        "I can't read Fahrenheit, please always give me Celsius.",
        "How cold will it get tonight?", "Do I need a jacket in Oslo tomorrow?",
        "Is the lake warm enough for a swim?", "What should the oven be set to for meringue?",
        "Will it freeze on the pass?", "How hot was it in Seville last week?",
    ),
    _chosen(
        "commit", {"long": ("long",), "imperative": ("imperative",)}, "imperative",
        "Commit messages in the imperative from now on, one line.",
        "Commit what we have.", "Good, save that as a commit.", "That works, commit it.",
        "Commit the rename separately.", "Put the fix into a commit of its own.",
        "Commit and go on with the next file.",
    ),
    _chosen(
        "write_mail", {"sie": ("siezen", "sie-form"), "du": ("du", "duzen", "duzt")}, "du",
        "Mit meinen Kunden bin ich per du, schreib ihnen also immer im Du.",
        "Schreib Frau Hansen, dass ihr Regal fertig ist.",
        "Antworte Herrn Petersen, der Liefertermin hält.",
        "Erinnere Familie Voss an die offene Rechnung.",
        "Bedanke dich bei Olli für die Bilder vom Einbau.",
        "Frag bei Jansens nach, ob Montag passt.",
        "Absage an Frau Thiel, die Eiche ist ausverkauft.",
    ),
    _chosen(
        "plot", {"rainbow": ("rainbow",), "viridis": ("viridis", "colour-blind")}, "viridis",
        "I am colour-blind, so use viridis for every figure.",
        "Plot the field strength over the sample.", "Show me the residuals as a map.",
        "A figure of the second run, please.", "Make the heat map for the group meeting.",
        "Draw the spectra above each other.", "Figure 4 for the paper.",
    ),
    _chosen(
        "recipe", {"cups": ("cups",), "grams": ("grams", "gram")}, "grams",
        "My kitchen has a scale and no cups: I want recipes in grams.",
        "What do I need for twelve scones?", "Scale the brioche to three loaves.",
        "Something sweet with rhubarb?", "How much dough for a tray of focaccia?",
        "Give me the pancake batter for five.", "Write down the sourdough we made.",
    ),
    _chosen(
        "report", {"prose": ("prose",), "table": ("table", "tables")}, "table",
        "I never read numbers in prose, they belong into a table.",
        "How did the three branches do this quarter?", "Compare the offers for the roof.",
        "Sum up my expenses of the trip.", "What did each ward use in masks?",
        "Which suppliers were late, and how late?", "Show the marks of class 9b.",
    ),
    _chosen(
        "translate", {"us": ("american",), "british": ("british",)}, "british",
        "ach ja, ich möchte grundsätzlich britisches Englisch (British), das wollen meine Kunden so",
        "Übersetze den Absatz über die Garantie.", "Bitte das Handbuch, Kapitel 2.",
        "Das Impressum auf Englisch.", "Wie heißt das auf Englisch: Sicherungskasten?",
        "Die Pressemitteilung muss auch auf Englisch raus.", "Noch den letzten Abschnitt übersetzen.",
    ),
    _chosen(
        "schedule", {"morning": ("morning", "mornings"), "late": ("afternoon", "afternoons", "after lunch")},
        "late",
        "I work nights, so appointments only in the afternoon please.",
        "Find me a slot at the dentist.", "The plumber wants to come on Wednesday.",
        "When can I meet the landlord?", "Get me a date for the inspection of the car.",
        "Parents' evening, they offer several times.", "Book the eye test.",
    ),
)  # fmt: skip

# A wish for one job: from the next one on the first value is right again.
CONTROLS = (
    Family(
        "route", "once", {"km": ("km",), "miles": ("miles",)}, "miles",
        "For this one in miles please, it is for my cousin in Ohio.",
        ("How far is it from Ulm to Munich?", "And to the lake?", "Distance to the airport?",
         "How long is the tour on Sunday?", "How far does the tram go?", "How far to the pass?"),
    ),
    Family(
        "export", "once", {"csv": ("csv",), "xlsx": ("xlsx", "excel")}, "xlsx",
        "Today I need it in Excel, the auditor is here.",
        ("Export the bookings.", "Export the members.", "Export the orders of May.",
         "Export all invoices.", "Export the stock.", "Export the time sheets."),
    ),
    Family(
        "greet", "once", {"formal": ("formal",), "rhyme": ("rhyme", "verse")}, "rhyme",
        "Haha, do that one as a rhyme, she turns sixty!",
        ("A card for Ines.", "A card for the new colleague.", "A card for the neighbours.",
         "A card for our caretaker.", "A card for the team.", "A card for Uncle Bo."),
    ),
    Family(
        "answer", "once", {"german": ("german", "deutsch"), "french": ("french", "französisch")}, "french",
        "Die Antwort hier bitte auf Französisch, mein Kollege liest mit.",
        ("Was heißt HTTP 409?", "Wie lösche ich einen Branch?", "Was tut chmod 640?",
         "Wie misst man Latenz?", "Was ist ein Mutex?", "Wie liest man einen Stacktrace?"),
    ),
)  # fmt: skip
