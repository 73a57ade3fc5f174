"""Seeded tapes of agent work with questions: paths, errors, versions, decisions, code; en and de.

Each fact is planted in a conversation about its service, next to turns that share its words but not
its answer: other services, other values, plans that were dropped.  Questions use other words than
the statements where a person would.  The same seed gives the same tapes.
"""

import random
from dataclasses import dataclass, field
from functools import partial

DAY_MS = 86_400_000
START_MS = 1_735_725_600_000  # 1 January 2025, 10:00 UTC
SESSIONS = 24
FILLERS = 16  # turns a session besides the facts

SERVICES = (
    "billing", "ingest", "gateway", "scheduler", "mailer", "search", "exporter", "auth", "ledger",
    "notifier", "thumbnailer", "webhooks",
)  # fmt: skip
EXCEPTIONS = (
    "ConnectionResetError", "KeyError: 'tenant_id'", "psycopg.errors.DeadlockDetected",
    "TimeoutError", "UnicodeDecodeError", "PermissionError: [Errno 13]", "json.JSONDecodeError",
    "OSError: [Errno 28] No space left on device", "ssl.SSLCertVerificationError",
    "sqlite3.OperationalError: database is locked",
)  # fmt: skip
CAUSES = (
    ("the pool was never closed after the fork", "der Pool wurde nach dem Fork nie geschlossen"),
    ("the migration ran twice", "die Migration lief zweimal"),
    ("a proxy cuts idle sockets after sixty seconds", "ein Proxy trennt ruhende Verbindungen"),
    ("the clock of the container drifts", "die Uhr des Containers läuft falsch"),
    ("the certificate bundle is from 2019", "das Zertifikatsbündel ist von 2019"),
    ("the retry loop has no limit", "die Wiederholungsschleife hat keine Grenze"),
    ("two workers share one temp folder", "zwei Worker teilen sich einen temporären Ordner"),
    ("the feature flag defaults to on", "das Feature-Flag ist standardmäßig an"),
)
LIBRARIES = ("httpx", "polars", "pydantic", "celery", "redis-py", "sqlalchemy", "jinja2", "numpy")
REASONS = (
    ("because it survives a restart", "weil es einen Neustart übersteht"),
    ("because the license forbids the other", "weil die Lizenz das andere verbietet"),
    ("because latency was half", "weil die Latenz halb so groß war"),
    ("because operations already runs it", "weil der Betrieb es schon hat"),
)
OPTIONS = (
    ("Redis Streams", "RabbitMQ"), ("Parquet", "CSV"), ("systemd timers", "cron"),
    ("row locks", "advisory locks"), ("feature branches", "trunk commits"), ("argon2", "bcrypt"),
)  # fmt: skip
PEOPLE = ("Anna", "Jonas", "Mira", "Tobias")


@dataclass(frozen=True, slots=True)
class Turn:
    id: str
    session: str
    author: str
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class LabelledQuestion:
    text: str
    category: str
    evidence: tuple[str, ...]


@dataclass(slots=True)
class Tapes:
    turns: list[Turn] = field(default_factory=list)
    questions: list[LabelledQuestion] = field(default_factory=list)


def make_tapes(seed: int = 7) -> Tapes:
    """Return some 700 turns and 200 questions."""
    return _Writer(random.Random(seed)).write()


class _Writer:
    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._tapes = Tapes()
        self._versions: dict[str, list[tuple[str, str]]] = {}  # service: (library, turn)
        self._errors: dict[str, list[str]] = {}  # service: turns

    def write(self) -> Tapes:
        for number in range(SESSIONS):
            self._write_session(number)
        self._ask_across_sessions()
        return self._tapes

    def _write_session(self, number: int) -> None:
        rng = self._rng
        german = number % 3 == 2
        service = SERVICES[number % len(SERVICES)]
        facts = [self._path, self._error, self._version, self._decision, self._code, self._port]
        plants = [partial(make, service, german=german) for make in facts]
        plants += [partial(self._filler, german=german)] * FILLERS
        rng.shuffle(plants)
        self._session = f"ses_{number:02}"
        self._at_ms = START_MS + number * 4 * DAY_MS
        self._say(
            "user",
            f"Lass uns am Dienst {service} weitermachen."
            if german
            else f"Let's continue with the {service} service.",
        )
        for plant in plants:
            plant()

    def _say(self, author: str, text: str) -> str:
        self._at_ms += self._rng.randrange(20_000, 400_000)
        turn = Turn(f"t{len(self._tapes.turns):04}", self._session, author, self._at_ms, text)
        self._tapes.turns.append(turn)
        return turn.id

    def _ask(self, category: str, text: str, *evidence: str) -> None:
        self._tapes.questions.append(LabelledQuestion(text, category, evidence))

    def _path(self, service: str, *, german: bool) -> None:
        rng = self._rng
        name = rng.choice(("retention", "quota", "throttle", "rollout", "backfill", "dedupe"))
        path = f"services/{service}/{name}_{rng.choice(('rules', 'policy', 'worker'))}.py"
        self._say("assistant", f"search_files {name}")
        found = self._say(
            "search_files",
            f"{path}:{rng.randrange(9, 300)}: def apply_{name}(batch: Batch) -> None:\nservices/common/{name}_types.py:3: import enum",
        )
        if german:
            self._ask("path", f"In welcher Datei von {service} wird {name} umgesetzt?", found)
        else:
            self._ask("path", f"Which file implements {name} for {service}?", found)

    def _error(self, service: str, *, german: bool) -> None:
        rng = self._rng
        error, (cause, ursache) = rng.choice(EXCEPTIONS), rng.choice(CAUSES)
        self._say(
            "run_tests",
            f'FAILED services/{service}/tests/test_{rng.choice(("io", "api", "jobs"))}.py - {error}\n  File "services/{service}/core.py", line {rng.randrange(20, 400)}, in run\n1 failed, {rng.randrange(20, 90)} passed',
        )
        if german:
            said = self._say(
                "assistant",
                f"Ursache gefunden: {ursache}. Der Fehler {error.split(':')[0]} in {service} verschwindet mit dem Patch.",
            )
            self._ask(
                "error",
                f"Warum schlug der Testlauf von {service} mit {error.split(':')[0]} fehl?",
                said,
            )
        else:
            said = self._say(
                "assistant",
                f"Root cause: {cause}. With the patch the {error.split(':')[0]} in {service} is gone.",
            )
            self._ask(
                "error", f"What was behind the {error.split(':')[0]} failures of {service}?", said
            )
        self._errors.setdefault(service, []).append(said)

    def _version(self, service: str, *, german: bool) -> None:
        rng = self._rng
        library = rng.choice(LIBRARIES)
        version = f"{rng.randrange(0, 9)}.{rng.randrange(1, 40)}.{rng.randrange(0, 9)}"
        said = self._say(
            "user",
            f"Bitte {library} in {service} auf {version} festhalten, neuere brechen uns."
            if german
            else f"Please pin {library} to {version} in {service}, newer ones break us.",
        )
        self._say("assistant", f"edit_file services/{service}/pyproject.toml")
        self._versions.setdefault(service, []).append((library, said))
        if german:
            self._ask("version", f"Welche Version von {library} verwendet {service}?", said)
        else:
            self._ask(
                "version", f"Which release of {library} does {service} have to stay on?", said
            )

    def _decision(self, service: str, *, german: bool) -> None:
        rng = self._rng
        (chosen, dropped), (reason, grund) = rng.choice(OPTIONS), rng.choice(REASONS)
        who = rng.choice(PEOPLE)
        self._say(
            "assistant",
            f"{service}: {chosen} oder {dropped}?"
            if german
            else f"For {service}, should it be {chosen} or {dropped}?",
        )
        said = self._say(
            who,
            f"Entscheidung: wir nehmen {chosen} statt {dropped}, {grund}."
            if german
            else f"Decision: we go with {chosen} over {dropped}, {reason}.",
        )
        if german:
            self._ask(
                "decision", f"Warum hat sich {who} bei {service} für {chosen} entschieden?", said
            )
        else:
            self._ask("decision", f"Why did {who} choose {chosen} for {service}?", said)

    def _code(self, service: str, *, german: bool) -> None:
        rng = self._rng
        noun = rng.choice(("Invoice", "Session", "Webhook", "Cursor", "Batch", "Tenant"))
        verb = rng.choice(("parse", "merge", "flush", "rotate", "verify", "resolve"))
        detail, einzelheit = rng.choice(
            (
                ("returns None for an empty header", "gibt None bei leerem Kopf zurück"),
                ("holds the lock while it writes", "hält die Sperre beim Schreiben"),
                ("retries twice and then raises", "versucht es zweimal und wirft dann"),
            )
        )
        said = self._say(
            "assistant", f"`{verb}{noun}Header()` in {service} {einzelheit if german else detail}."
        )
        if german:
            self._ask("code", f"Was macht {verb}_{noun.lower()}_header in {service}?", said)
        else:
            self._ask("code", f"How does {verb} {noun.lower()} header behave in {service}?", said)

    def _port(self, service: str, *, german: bool) -> None:
        rng = self._rng
        port, stage = rng.randrange(3_000, 9_900), rng.choice(("staging", "production", "preview"))
        said = self._say(
            "shell",
            f'$ ss -ltnp\nLISTEN 0 128 127.0.0.1:{port} users:(("{service}",pid={rng.randrange(200, 9000)}))  # {stage}',
        )
        if german:
            self._ask("tool_result", f"Auf welchem Port lauscht {service} in {stage}?", said)
        else:
            self._ask("tool_result", f"On which port is {service} listening in {stage}?", said)

    def _filler(self, *, german: bool) -> None:
        rng = self._rng
        service, library = rng.choice(SERVICES), rng.choice(LIBRARIES)
        english = (
            ("assistant", f"list_files services/{service}"),
            ("list_files", f"services/{service}/core.py\nservices/{service}/tests/test_api.py\nservices/{service}/pyproject.toml"),
            ("run_tests", f"{rng.randrange(20, 200)} passed in {rng.randrange(2, 60)} s"),
            ("user", f"Does {service} still use {library}?"),
            ("assistant", f"{library} is imported in {rng.randrange(2, 9)} files of {service}; nothing to change there."),
            ("user", f"Fine. Which port was it again, and is {service} green?"),
            ("assistant", f"Checking {service} first, then the deploy notes."),
            ("shell", f"$ git log --oneline -3\n{rng.getrandbits(28):07x} {service}: tidy imports\n{rng.getrandbits(28):07x} bump {library}"),
            ("user", "Thanks, go on with the next step."),
        )  # fmt: skip
        deutsch = (
            ("assistant", f"list_files services/{service}"),
            ("run_tests", f"{rng.randrange(20, 200)} passed in {rng.randrange(2, 60)} s"),
            ("user", f"Nutzt {service} noch {library}?"),
            ("assistant", f"{library} wird in {rng.randrange(2, 9)} Dateien von {service} importiert, dort ist nichts zu tun."),
            ("user", f"Gut. Ist {service} grün, und welche Version war es?"),
            ("assistant", f"Ich prüfe zuerst {service}, dann die Notizen zum Deployment."),
            ("user", "Danke, weiter mit dem nächsten Schritt."),
        )  # fmt: skip
        self._say(*rng.choice(deutsch if german else english))

    def _ask_across_sessions(self) -> None:
        """Questions with several answers, in different conversations."""
        for service, pinned in sorted(self._versions.items()):
            if len(pinned) > 1:
                self._ask(
                    "multi_hop",
                    f"Which libraries are pinned in {service}?",
                    *(turn for _, turn in pinned),
                )
        for service, turns in sorted(self._errors.items()):
            if len(turns) > 1:
                self._ask(
                    "multi_hop", f"What root causes of failing tests did {service} have?", *turns
                )
