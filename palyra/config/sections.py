"""Sections of the configuration: the type, range, default and description of every key.

Each section is one struct.  `palyra.config.load` reads them from file, environment and command
line.  The docstrings of sections and the descriptions of keys are published in the schema, in the
generated configuration file and in docs/configuration.md.
"""

from datetime import date
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Few = Annotated[int, Meta(ge=1, le=64)]
_Bytes = Annotated[int, Meta(ge=1_024, le=1_073_741_824)]
_Mib = Annotated[int, Meta(ge=16, le=1_048_576)]
_Deadline = Annotated[int, Meta(ge=1, le=600)]
_MibOrNone = Annotated[int, Meta(ge=0, le=1_048_576)]
_Seconds = Annotated[int, Meta(ge=1, le=86_400)]
_Days = Annotated[int, Meta(ge=1, le=3_650)]
_CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000)]
_Window = Annotated[int, Meta(ge=0, le=100_000_000)]
_Tier = Annotated[int, Meta(ge=1, le=3)]
_Pause = Annotated[int, Meta(ge=0, le=60_000)]
_Micros = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]  # a million dollars
_Amount = Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)]
_SecondsOrNone = Annotated[int, Meta(ge=0, le=31_622_400)]  # 366 days
_Name = Annotated[str, Meta(max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
_Millis = Annotated[int, Meta(ge=100, le=604_800_000)]  # a week


def _doc(text: str) -> Meta:
    return Meta(description=text)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class Server(Section, frozen=True, kw_only=True):
    """Where clients connect, and what one connection may use."""

    host: Annotated[str, _doc("Address to listen on; loopback unless you know why.")] = "127.0.0.1"
    port: Annotated[_Port, _doc("Port; 0 takes a free one.")] = 7467
    allowed_hosts: Annotated[
        tuple[str, ...], _doc("Names beside loopback that a Host header may carry.")
    ] = ()
    allowed_origins: Annotated[
        tuple[str, ...], _doc("Origins beside our own that a browser page may have.")
    ] = ()
    max_connections: Annotated[_Count, _doc("Connections at once.")] = 512
    max_message_bytes: Annotated[_Bytes, _doc("Largest message a client may send.")] = 1_048_576
    max_inflight: Annotated[_Count, _doc("Requests of one connection at once.")] = 64
    max_subscriptions: Annotated[_Count, _doc("Subscriptions of one connection.")] = 256
    outbox_bytes: Annotated[_Bytes, _doc("What may wait for one slow connection.")] = 8_388_608
    requests_per_s: Annotated[_Count, _doc("Requests a second of one connection.")] = 100


class JournalConfig(Section, frozen=True, kw_only=True):
    """The durable store."""

    synchronous: Annotated[
        Literal["full", "normal"], _doc("full survives power loss; normal only kill -9.")
    ] = "full"


class MemoryConfig(Section, frozen=True, kw_only=True):
    """Search in the memory."""

    embedder: Annotated[
        Literal["auto", "hashed", "minilm"],
        _doc("What compares meanings: parts of words, or MiniLM; auto takes MiniLM if installed."),
    ] = "auto"


class RunsConfig(Section, frozen=True, kw_only=True):
    """Bounds of runs."""

    wall_ms: Annotated[_Millis, _doc("How long a run may take.")] = 900_000
    wall_counts_approvals: Annotated[
        bool, _doc("Whether time in which a person is asked counts as well.")
    ] = False
    approval_ms: Annotated[_Millis, _doc("How long a person has to answer.")] = 900_000
    max_turns: Annotated[_Count, _doc("Model turns of one run.")] = 256
    max_open: Annotated[_Count, _doc("Open runs at once.")] = 10_000
    history_tokens: Annotated[
        _CountOrNone, _doc("How much of a session's earlier runs the model is shown; 0: nothing.")
    ] = 32_000
    queue_cap: Annotated[_Count, _doc("Messages that may wait in one session.")] = 20
    debounce_ms: Annotated[
        _Pause, _doc("How long a collected run waits for one more message; 0: not at all.")
    ] = 500
    drain_ms: Annotated[_Millis, _doc("How long runs may finish when the daemon stops.")] = 10_000


class ToolsConfig(Section, frozen=True, kw_only=True):
    """What tools may touch."""

    workspace: Annotated[str, _doc("The directory tools work in; empty: the current one.")] = ""


class Wasm(Section, frozen=True, kw_only=True):
    """Skills, which are WASM modules in worker processes behind the sandbox's walls."""

    enabled: Annotated[bool, _doc("Whether skills can be called.")] = True
    workers: Annotated[_Few, _doc("Worker processes that stand ready once there is a skill.")] = 2


class FilesConfig(Section, frozen=True, kw_only=True):
    """What is kept beside the journal: whole outputs, and files as a call found and left them."""

    artifacts_mib: Annotated[_Mib, _doc("Whole outputs of calls; the oldest go first.")] = 1_024
    artifacts_days: Annotated[_Days, _doc("How long they are kept.")] = 30
    checkpoints_mib: Annotated[_Mib, _doc("File checkpoints; the oldest go first.")] = 1_024
    checkpoints_days: Annotated[_Days, _doc("How long they are kept.")] = 30


class FetchCredential(Section, frozen=True, kw_only=True):
    """What proves to one host who asks; the secret itself is elsewhere."""

    name: Annotated[str, _doc("How a model names it.")]
    secret: Annotated[str, _doc("Reference to the secret: env:, file:, keyring: or vault:.")]
    host: Annotated[str, _doc("The only host it is sent to.")]
    header: Annotated[str, _doc("The header it is sent in.")] = "authorization"
    prefix: Annotated[str, _doc("What stands before the secret.")] = "Bearer "


class Fetch(Section, frozen=True, kw_only=True):
    """Requests made for a model, and by commands that have network."""

    ports: Annotated[tuple[_Port, ...], _doc("Ports that may be contacted.")] = (80, 443)
    private: Annotated[
        tuple[str, ...], _doc("host:port pairs that may lie in private networks or on loopback.")
    ] = ()
    ca_file: Annotated[str, _doc("Further certificate authorities, a PEM file.")] = ""
    credentials: Annotated[
        tuple[FetchCredential, ...], _doc("Tables of name, secret, host, header, prefix.")
    ] = ()


class McpServerConfig(Section, frozen=True, kw_only=True):
    """One server of the Model Context Protocol: a program or an address."""

    name: Annotated[str, _doc("Its tools are called mcp:NAME.TOOL.")]
    command: Annotated[tuple[str, ...], _doc("The program and its arguments.")] = ()
    environment: Annotated[
        tuple[str, ...], _doc("NAME=TEXT for the program; TEXT may be a reference to a secret.")
    ] = ()
    url: Annotated[str, _doc("The address of one that runs elsewhere.")] = ""
    token: Annotated[str, _doc("Reference to the bearer token for that address.")] = ""
    sandbox: Annotated[
        Literal["jail", "none"], _doc("Where the program runs; none: with the daemon's own rights.")
    ] = "jail"
    workspace: Annotated[
        Literal["none", "read", "write"], _doc("What the jail shows of the workspace.")
    ] = "none"
    folders: Annotated[tuple[str, ...], _doc("Further folders the jail shows, read-only.")] = ()
    hosts: Annotated[
        tuple[str, ...],
        _doc("Hosts it reaches from the jail, as host or host:port; none: no network."),
    ] = ()
    risk: Annotated[
        Literal["low", "medium", "high", "critical"], _doc("The least risk of its tools.")
    ] = "high"
    capabilities: Annotated[
        tuple[str, ...], _doc("What its tools can do beside what follows from the above.")
    ] = ()
    read_only: Annotated[
        tuple[str, ...], _doc("Tools that are believed when they say they change nothing.")
    ] = ()
    left_out: Annotated[tuple[str, ...], _doc("Tools that are not taken.")] = ()
    deadline_s: Annotated[_Deadline, _doc("How long a call may take.")] = 60
    open_files: Annotated[_Count, _doc("Open files of each of its processes in the jail.")] = 1_024
    address_space_mib: Annotated[
        _MibOrNone, _doc("Address space of each of them; 0: not limited. Node needs 4096.")
    ] = 4_096
    memory_mib: Annotated[
        _Mib | None, _doc("Memory of all of them together; left out: as in [sandbox].")
    ] = None


class Mcp(Section, frozen=True, kw_only=True):
    """Servers of the Model Context Protocol; they need the extra `mcp`."""

    servers: Annotated[
        tuple[McpServerConfig, ...], _doc("Tables of name, command or url, and what they may do.")
    ] = ()


class SandboxConfig(Section, frozen=True, kw_only=True):
    """The jail that programs run in, and what each may use."""

    min_level: Annotated[
        Literal["A", "B"],
        _doc("The weakest sandbox programs may run in; B: also without namespaces (see security)."),
    ] = "A"
    environment: Annotated[
        tuple[str, ...], _doc("Variables of the daemon that programs get, beside PATH and HOME.")
    ] = ()
    hosts: Annotated[
        tuple[str, ...], _doc("Hosts that programs reach, as host or host:port; none: no network.")
    ] = ()
    deadline_s: Annotated[_Seconds, _doc("The longest a call may let a program run.")] = 600
    memory_mib: Annotated[_Mib, _doc("Memory of one command, all its processes together.")] = 896
    address_space_mib: Annotated[
        _MibOrNone, _doc("Address space of each process; 0: not limited. Node needs 4096.")
    ] = 1_024
    processes: Annotated[_Count, _doc("Processes and threads of one command.")] = 64
    open_files: Annotated[_Count, _doc("Open files of each process.")] = 128
    file_mib: Annotated[_Mib, _doc("The largest file a command may write.")] = 64
    cpu_s: Annotated[_Seconds, _doc("Processor time of each process.")] = 120
    temporary_mib: Annotated[
        _Mib, _doc("Temporary files of one command; as much again for HOME.")
    ] = 64


class Secrets(Section, frozen=True, kw_only=True):
    """Where secrets are kept."""

    passphrase: Annotated[
        str, _doc("Reference to the vault's passphrase; empty: a key file beside the others.")
    ] = ""


class ModelProvider(Section, frozen=True, kw_only=True):
    """Who runs models; openai, anthropic, openrouter, ollama, llamacpp and vllm need only a name."""

    name: Annotated[str, _doc("Its models are called NAME/MODEL.")]
    api: Annotated[
        Literal["", "chat", "responses", "anthropic"],
        _doc("How it is spoken to; empty: as its name says, else chat."),
    ] = ""
    base_url: Annotated[str, _doc("With the version; empty: as its name says.")] = ""
    key: Annotated[str, _doc("Reference to its key; empty: as its name says.")] = ""
    models: Annotated[tuple[str, ...], _doc("Models that lists show; others can be used too.")] = ()
    max_tokens: Annotated[_CountOrNone, _doc("Of one answer; 0: its own limit.")] = 0
    stall_s: Annotated[_Seconds, _doc("How long it may be silent.")] = 60
    parallel: Annotated[_Count, _doc("Calls at once.")] = 4
    parallel_per_key: Annotated[_Count, _doc("Calls at once with one key.")] = 2


class ModelRoute(Section, frozen=True, kw_only=True):
    """A model that runs may be routed to, and what it can do."""

    model: Annotated[str, _doc("Its name, PROVIDER/NAME.")]
    vision: Annotated[bool, _doc("Whether it sees pictures.")] = False
    json: Annotated[bool, _doc("Whether it has a JSON mode.")] = True
    tools: Annotated[bool, _doc("Whether it calls tools.")] = True
    window: Annotated[_Window, _doc("Tokens it takes at once; 0: not known.")] = 0
    tier: Annotated[_Tier, _doc("How much it can do: 1 simple, 2 ordinary, 3 demanding.")] = 2
    failover: Annotated[
        tuple[str, ...], _doc("What takes over from it, also when a client named it.")
    ] = ()


class Models(Section, frozen=True, kw_only=True):
    """Which model answers."""

    default: Annotated[str, _doc("Model of runs that name none.")] = "scripted"
    scripts: Annotated[str, _doc("A JSON file of scripts for the scripted model.")] = ""
    embeddings: Annotated[
        str, _doc("Model that turns texts into vectors: PROVIDER/NAME, or embedded.")
    ] = "embedded"
    providers: Annotated[
        tuple[ModelProvider, ...], _doc("Tables of name, key and what else a provider needs.")
    ] = ()
    routing: Annotated[
        Literal["suggest", "dry_run", "enforced"],
        _doc("What becomes of a run's route: noted only, tried on paper, or taken."),
    ] = "suggest"
    routes: Annotated[
        tuple[ModelRoute, ...], _doc("Tables of model and what it can do, the preferred one first.")
    ] = ()
    failover: Annotated[
        tuple[str, ...], _doc("Models that take over from one that keeps failing, in order.")
    ] = ()


class ModelPrice(Section, frozen=True, kw_only=True):
    """What the tokens of some models cost, from a day on, in micro-dollars for a million."""

    model: Annotated[str, _doc("PROVIDER/NAME, or its beginning and *.")]
    input: Annotated[_Micros, _doc("A million tokens of input.")]
    output: Annotated[_Micros, _doc("A million tokens of output.")]
    cached_input: Annotated[
        _Micros | None, _doc("A million tokens of input from the cache; left out: as input.")
    ] = None
    cache_write: Annotated[
        _Micros | None, _doc("A million tokens of input into the cache; left out: as input.")
    ] = None
    since: Annotated[date, _doc("The first day, in UTC.")] = date(1970, 1, 1)


class BudgetConfig(Section, frozen=True, kw_only=True):
    """How much may be spent, by whom, in which time."""

    id: Annotated[_Name, _doc("Its name.")]
    scope: Annotated[
        Literal["global", "principal", "agent", "session", "run"], _doc("Whose calls count.")
    ] = "global"
    subject: Annotated[str, _doc("Which principal, agent or session; *: each on its own.")] = "*"
    metric: Annotated[
        Literal["tokens", "usd_micros"], _doc("What counts; money in micro-dollars.")
    ] = "tokens"
    window: Annotated[
        Literal["run", "hour", "day", "month", "sliding"], _doc("In which time, in UTC.")
    ] = "day"
    window_s: Annotated[_SecondsOrNone, _doc("How long a sliding window is.")] = 0
    soft: Annotated[_Amount, _doc("From here on somebody is told; 0: never.")] = 0
    hard: Annotated[_Amount, _doc("From here on the action counts; 0: never.")] = 0
    action: Annotated[
        Literal["warn", "ask", "block"],
        _doc("What happens at hard: a warning, a question, the end."),
    ] = "block"


class UsageConfig(Section, frozen=True, kw_only=True):
    """What models cost, and how much may be spent."""

    prices: Annotated[
        tuple[ModelPrice, ...],
        _doc("Tables of model, input, output, cached_input, cache_write, since."),
    ] = ()
    budgets: Annotated[
        tuple[BudgetConfig, ...], _doc("Tables of id, scope, metric, window, soft, hard, action.")
    ] = ()
    reserve_tokens: Annotated[
        _Count, _doc("What a call is expected to answer, where max_tokens does not say it.")
    ] = 8_192


class PolicyConfig(Section, frozen=True, kw_only=True):
    """The rules."""

    dir: Annotated[
        str, _doc("Directory of your own *.cedar files; empty: policies/ beside the configuration.")
    ] = ""


class Logging(Section, frozen=True, kw_only=True):
    """What the daemon says about itself, on standard error."""

    format: Annotated[Literal["console", "json"], _doc("For people or for programs.")] = "console"
    level: Annotated[Literal["debug", "info", "warning", "error"], _doc("Least level shown.")] = (
        "info"
    )


SECTIONS: dict[str, type[Section]] = {
    "server": Server,
    "journal": JournalConfig,
    "runs": RunsConfig,
    "memory": MemoryConfig,
    "tools": ToolsConfig,
    "files": FilesConfig,
    "wasm": Wasm,
    "fetch": Fetch,
    "mcp": Mcp,
    "sandbox": SandboxConfig,
    "secrets": Secrets,
    "models": Models,
    "usage": UsageConfig,
    "policy": PolicyConfig,
    "logging": Logging,
}
