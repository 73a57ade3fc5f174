# ruff: noqa: RUF001 - users type typographic quotes
"""A log with plants and traps: messages, and what should become of each."""

from itertools import pairwise

PREFERENCES = [  # should be proposed
    "I prefer short answers.",
    "I always prefer tabs over spaces.",
    "Remember that I like British spelling.",
    "From now on, always answer in German.",
    "Please remember: never touch the migrations folder.",
    "I hate long introductions.",
    "Going forward, always run the linter before you commit.",
    "My preference is pytest over unittest.",
    "Call me Jo.",
    "Always use type hints in our Python code.",
    "Merke dir: ich bevorzuge kurze Antworten.",
    "Ich mag keine Emojis in Antworten.",
    "Ab jetzt immer auf Deutsch antworten.",
    "We prefer squash merges to merge commits.",
    "Never push to main without asking me.",
    "In future, always show the diff before you write a file.",
    "I really dislike trailing summaries.",
    "I never want force pushes.",
    "We always write commit messages in the imperative.",
    "Don't forget that I prefer dark themes.",
]
FACTS = [
    "Our staging database listens on port 6432.",
    "We use Postgres 16 for all services.",
    "My name is Jana and I work at Acme in Brno.",
    "I live in Prague.",
    "Remember that the deploy key is rotated every Monday.",
    "Our CI server is Jenkins.",
    "We deploy with `make deploy` from the release branch.",
    "For future reference, the billing service is written in Go.",
    "Note that the office network is 10.4.0.0/16.",
    "Our product is called Orion.",
    "We decided to use SQLite because it needs no server.",
    "My timezone is Europe/Prague.",
    "Our release manager is Petra.",
    "Unser Server läuft auf Hetzner.",
    "Merke dir, dass die Abnahme im Raum 204 ist.",
    "I'm a backend developer.",
    "Our API gateway runs in Frankfurt.",
    "We host the docs on Netlify.",
    "Keep in mind that the vendor's support ends in 2027.",
    "My team has five people.",
]
UNMARKED = [  # statements without a sign that they last: wait for a repetition
    "Jenkins is slow.",
    "The importer is a mess.",
    "Containers are just processes.",
]
TRAPS = [  # never applied by itself, and not proposed
    "Bob says he always uses tabs.",
    "For this file use tabs.",
    "Today I want short answers.",
    "I think we use Redis, maybe.",
    "If I prefer dark mode, what changes?",
    "Translate: I always prefer red.",
    "Imagine our server is called Mars.",
    "We used to deploy with Jenkins.",
    "git commit -m 'always use tabs'",
    "Fix the login bug.",
    "Remember when we used Perl?",
    "Can you remember that for me?",
    "Alice prefers tabs over spaces.",
    "The customer said our port is 9999.",
    "In my story the hero always wears red.",
    "Just this once, never mind the tests.",
    "The user prefers tea (confidence: 0.9).",
    "It always fails on Mondays.",
    "[cron] always post the report.",
    "Our server is down right now.",
    "I want you to fix the parser here.",
    "Write a test that says I always win.",
    "Suppose we always deploy on Friday.",
    "My build is currently on port 3000.",
    "Vielleicht nutzen wir Redis.",
    "Heute möchte ich kurze Antworten.",
    "Ich glaube, unser Port ist 8080.",
    "Früher hatten wir immer Jenkins.",
    "Always, you said, but which branch?",
    "Many people always prefer dark mode.",
]
CONTROLS = [  # look like plants, and must never be applied by itself
    *TRAPS,
    "My colleague's machine runs Fedora, according to him.",
    "They told us to always use spaces.",
    "The readme says our port is 1234.",
    "She always wants long answers.",
    "For the demo, our product is called Mars.",
    "For now we use Redis 7.",
    "Until Friday, always deploy by hand.",
    "I would always prefer tabs if I could.",
    "Our plan was to always use Go.",
    "Pretend that I always prefer French.",
    "For example, I always prefer tea.",
    "Let's say my name is Max.",
    "Rewrite this: we always use Java.",
    "I guess I always prefer Vim.",
    "Apparently our team always uses Slack.",
    "Tonight we always deploy from my laptop.",
    "According to the wiki we always squash.",
    "My manager wants us to always use Jira, he says.",
    "Next week our office is always closed.",
    "Stell dir vor, ich bevorzuge Tee.",
]


# Sentences written after the rules, by which they were measured, then corrected.
EVERYDAY = [
    "Just so you know, our customers are mostly hospitals.",
    "I'm allergic to peanuts.",
    "Please keep in mind that Sundays are off limits for deployments.",
    "My daughter's name is Ella.",
    "We store all timestamps in UTC.",
    "I work night shifts.",
    "Remember I can't read Kotlin.",
    "Use metric units from now on.",
    "Never use exclamation marks with me.",
    "The team agreed to use trunk-based development.",
    "Our SLA is 99.9 percent.",
    "I'd rather have bullet points than paragraphs.",
    "My manager is called Dana.",
    "We're on Kubernetes 1.29 in production.",
    "Always cite the file and line.",
    "Ich arbeite bei Siemens in Erlangen.",
    "Unser Budget ist 5000 Euro pro Monat.",
    "Bitte antworte mir immer per Du.",
    "I use zsh on a Mac.",
    "Our logo colours are teal and orange.",
    "Make sure you always ask before deleting files.",
    "The wifi password rotates monthly, please remember that.",
    "For future reference, invoices go out on the 5th.",
    "My pronouns are they/them.",
    "I don't like being interrupted with questions.",
    "I prefer dark roast over light roast, by the way.",
    "Our legal entity is Blue Heron GmbH.",
    "Always answer with code first and words after it.",
    "We ship on Thursdays.",
    "My home directory is /home/kim.",
    "Please note that our fiscal year starts in April.",
    "I hate yaml.",
    "Never suggest Windows tools.",
    "Our frontend uses Svelte.",
    "From now on, call the project Falcon.",
    "I'm based in Lisbon.",
    "Write commit subjects without a full stop, always.",
    "Our main branch is named trunk.",
    "Meine Tochter heißt Lena.",
    "Ich bevorzuge Tabellen.",
    "We never deploy on Fridays.",
    "My boss is Carla Mendes.",
    "We use four spaces in Python.",
    "I speak Czech and English.",
    "Keep in mind that the archive lives on nas02.",
]
PASSING = [  # states and wants of the present task
    "Could you always double check that?",
    "My test is failing.",
    "I want to rename this variable.",
    "We have a problem with the build.",
    "Our meeting is at 3.",
    "I need a function that sorts a list.",
    "My code always crashes with this input.",
    "I have an error in line 5.",
    "We are almost done with the migration.",
    "I like what you did there.",
    "I love it, thanks!",
    "I'm getting a 404 error.",
    "I use the example from the docs and it fails.",
    "Our build has been red since lunch.",
    "I want the table to have three columns.",
    "I am trying to install the package.",
    "I prefer the second option.",
    "We have two options left.",
    "My screen is black.",
    "I am not sure I understand.",
    "I need this by noon.",
    "The user manual says to always reboot.",
    "I'm going to bed.",
    "We use that in line 12.",
    "I always get confused by regexes, explain this one.",
    "What does our deploy script do?",
    "My function returns None, why.",
    "I used to love Perl.",
    "We are using the wrong branch for that.",
    "I like this answer.",
    "Please rename my file to notes.txt.",
    "Our tests take ages at the moment.",
    "My terminal shows a strange symbol.",
    "I always see this message when I start it.",
    "The docs say we always need a token.",
    "I was told that our API is public.",
    "I am writing a letter to my landlord.",
    "Our next task is the importer.",
    "I guess my key is expired.",
    "We want to add a button.",
    "I have to go now.",
    "My question is about generators.",
    "I think I always did that.",
    "Our customer asked for a refund.",
    "Let me know when my report is ready.",
]


# --- what a model may make of a plant ------------------------------------------------------------

_THIRD = (("I'm ", "The user is "), ("I am ", "The user is "), ("My ", "The user's "),
          ("Our ", "The user's "), ("I ", "The user "), ("We ", "The user "))  # fmt: skip
_LONG = (("can't ", "cannot "), ("n't ", " not "), ("n’t ", " not "))
_SOFT = {"please", "really", "bitte"}


def rephrase(plant: str) -> list[str]:
    """Return texts that say the same: other case, third person, contractions spelt out."""
    third = next(
        (new + plant.removeprefix(old) for old, new in _THIRD if plant.startswith(old)), plant
    )
    spelt = plant
    for old, new in _LONG:
        spelt = spelt.replace(old, new)
    return [plant, third, spelt, plant.rstrip(".")]


def falsify(plant: str) -> list[str]:
    """Return texts that say something else: negated, un-negated, another number, words exchanged."""
    words = plant.split()
    found = [f"It is not true that {plant}", f"{plant.rstrip('.')} no longer."]
    for at in range(1, len(words)):
        found += [" ".join((*words[:at], denial, *words[at:])) for denial in ("not", "never", "no")]
    for at, word in enumerate(words):
        if word.casefold() in {"not", "no", "never", "without", "don't", "keine"}:
            found.append(" ".join((*words[:at], *words[at + 1 :])))
        digits = [place for place, char in enumerate(word) if char.isdigit()]
        for place in digits:
            other = f"{word[:place]}{(int(word[place]) + 1) % 10}{word[place + 1 :]}"
            found.append(" ".join((*words[:at], other, *words[at + 1 :])))
    bare = [word.strip(".,:`") for word in words]
    long = [at for at, word in enumerate(bare) if word[4:] and word.casefold() not in _SOFT]
    for first, second in pairwise(long):
        swapped = [*bare]
        swapped[first], swapped[second] = bare[second], bare[first]
        if bare[first].rstrip("s") != bare[second].rstrip("s"):
            found.append(" ".join(swapped))
    return found
