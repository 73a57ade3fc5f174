"""Sections of the configuration: the type, range, default and description of every key.

Each section is one struct.  `palyra.config.load` reads them from file, environment and command
line.  The docstrings of sections and the descriptions of keys are published in the schema, in the
generated configuration file and in docs/configuration.md.
"""

from datetime import date
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from palyra.core.push import SERVICES
from palyra.core.usage import dollars

_Port = Annotated[int, Meta(ge=0, le=65_535)]
_Percent = Annotated[int, msgspec.Meta(ge=0, le=100)]
_BasisPoints = Annotated[int, msgspec.Meta(ge=0, le=10_000)]
_Count = Annotated[int, Meta(ge=1, le=1_000_000)]
_Few = Annotated[int, Meta(ge=1, le=64)]
_Bytes = Annotated[int, Meta(ge=1_024, le=1_073_741_824)]
_Mib = Annotated[int, Meta(ge=16, le=1_048_576)]
_Deadline = Annotated[int, Meta(ge=1, le=600)]
_MibOrNone = Annotated[int, Meta(ge=0, le=1_048_576)]
_Seconds = Annotated[int, Meta(ge=1, le=86_400)]
_Days = Annotated[int, Meta(ge=1, le=3_650)]
_DaysOrNone = Annotated[int, Meta(ge=0, le=3_650)]
_CountOrNone = Annotated[int, Meta(ge=0, le=1_000_000)]
_Window = Annotated[int, Meta(ge=0, le=100_000_000)]
_Tier = Annotated[int, Meta(ge=1, le=3)]
_Pause = Annotated[int, Meta(ge=0, le=60_000)]
_Sweep = Annotated[int, Meta(ge=0, le=3_600_000)]
_Micros = Annotated[int, Meta(ge=0, le=1_000_000_000_000)]  # a million dollars
_Amount = Annotated[int, Meta(ge=0, le=1_000_000_000_000_000)]
# Compared with the Host and Origin headers of requests; anything else would never match.
_HOST = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:[0-9]{1,5})?"
_Host = Annotated[
    str,
    Meta(
        pattern=f"^{_HOST}$",
        extra={"words": "host names, such as palyra.example or a.example:8443"},
    ),
]
_Origin = Annotated[
    str,
    Meta(
        pattern=f"^[a-z][a-z0-9+.-]*://({_HOST})?$",
        extra={"words": "origins, such as https://palyra.example, without a path"},
    ),
]
_PublicUrl = Annotated[
    str,
    Meta(
        pattern=rf"^(https?://{_HOST}(/[A-Za-z0-9._~-]+)*/?)?$",
        extra={
            "words": "an address such as https://palyra.example/agent, without query, or nothing"
        },
    ),
]
_Dollars = Annotated[str, Meta(pattern=dollars.PATTERN, extra={"words": dollars.WORDS})]
_SecondsOrNone = Annotated[int, Meta(ge=0, le=31_622_400)]  # 366 days
_Name = Annotated[str, Meta(max_length=64, pattern=r"^[a-z0-9][a-z0-9._-]*$")]
_Region = Annotated[str, Meta(max_length=64, pattern=r"^[a-z0-9-]+$")]
_Embedder = Annotated[str, Meta(pattern=r"^(?:auto|hashed|embedded|minilm|[^/]+/.+)$")]
_Millis = Annotated[int, Meta(ge=100, le=604_800_000)]  # a week
_Cooldown = Annotated[int, Meta(ge=0, le=86_400_000)]  # a day


def _doc(text: str) -> Meta:
    return Meta(description=text)


class Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of all sections."""


class Server(Section, frozen=True, kw_only=True):
    """Address of the server and limits of a connection."""

    host: Annotated[
        str, _doc("Address to listen on. Anything but loopback exposes the daemon.")
    ] = "127.0.0.1"
    port: Annotated[_Port, _doc("Port to listen on; 0 takes a free one.")] = 7467
    allowed_hosts: Annotated[
        tuple[_Host, ...],
        _doc("Host header values that are accepted in addition to loopback names."),
    ] = ()
    allowed_origins: Annotated[
        tuple[_Origin, ...],
        _doc("Origins of browser pages that are accepted in addition to the daemon's own."),
    ] = ()
    public_url: Annotated[
        _PublicUrl,
        _doc(
            "Address under which browsers reach the daemon behind a proxy, below a path if it has one: "
            "its host and origin are accepted, and links to the console begin with it."
        ),
    ] = ""
    max_connections: Annotated[_Count, _doc("Maximum number of connections.")] = 512
    max_message_bytes: Annotated[_Bytes, _doc("Largest message a client may send.")] = 1_048_576
    max_inflight: Annotated[
        _Count, _doc("Maximum number of concurrent requests on one connection.")
    ] = 64
    max_subscriptions: Annotated[
        _Count, _doc("Maximum number of subscriptions on one connection.")
    ] = 256
    outbox_bytes: Annotated[
        _Bytes, _doc("Maximum size of the outgoing queue of one connection.")
    ] = 8_388_608
    requests_per_s: Annotated[_Count, _doc("Maximum request rate of one connection.")] = 100


class JournalConfig(Section, frozen=True, kw_only=True):
    """The durable store."""

    synchronous: Annotated[
        Literal["full", "normal"],
        _doc("full survives a power cut; normal survives only a crash of the process."),
    ] = "full"


class MemoryConfig(Section, frozen=True, kw_only=True):
    """Search in the memory."""

    embedder: Annotated[
        _Embedder,
        _doc(
            "Embedder of meanings: hashed (parts of words), minilm, or the PROVIDER/NAME of an "
            "embedding model, which is sent all memories; auto takes MiniLM if it is installed."
        ),
    ] = "auto"
    reranker: Annotated[
        str,
        _doc(
            "PROVIDER/NAME of a model that re-orders the best hits of each search of the memory, by "
            "POST /rerank, and is sent them; empty: none."
        ),
    ] = ""
    recall: Annotated[bool, _doc("Show matching memories to the model of a new run.")] = True


class LearningConfig(Section, frozen=True, kw_only=True):
    """Learning from runs that ended."""

    mode: Annotated[
        Literal["off", "review", "auto"],
        _doc("off: nothing is learned; review: a person accepts; auto: sure candidates apply."),
    ] = "off"
    model: Annotated[
        str,
        _doc(
            "Model that reads runs as well; cheapest: the one of the providers that costs least; "
            "empty: runs are read without a model."
        ),
    ] = "cheapest"
    sample_bps: Annotated[
        _BasisPoints,
        _doc("Share of the runs that are read at their end, in basis points; 10000: every run."),
    ] = 10_000
    cooldown_ms: Annotated[
        _Cooldown,
        _doc("Least time between two readings of one session; runs in between wait. 0: none."),
    ] = 0
    fact_review_bps: Annotated[
        _BasisPoints, _doc("Score from which a fact is proposed, in basis points.")
    ] = 7_500
    fact_auto_bps: Annotated[_BasisPoints, _doc("Score from which mode auto applies a fact.")] = (
        9_000
    )
    preference_review_bps: Annotated[
        _BasisPoints, _doc("Score from which a preference is proposed.")
    ] = 8_000
    preference_auto_bps: Annotated[
        _BasisPoints, _doc("Score from which mode auto applies a preference.")
    ] = 9_200


class TasksConfig(Section, frozen=True, kw_only=True):
    """Background tasks and schedules."""

    max_running: Annotated[_Few, _doc("Maximum number of background tasks that run at once.")] = 16


class RunsConfig(Section, frozen=True, kw_only=True):
    """Bounds of runs."""

    wall_ms: Annotated[_Millis, _doc("Maximum duration of a run.")] = 900_000
    wall_counts_approvals: Annotated[
        bool, _doc("Count the time spent waiting for approvals as well.")
    ] = False
    approval_ms: Annotated[_Millis, _doc("Time after which an unanswered approval is denied.")] = (
        900_000
    )
    max_turns: Annotated[_Count, _doc("Maximum number of model turns in one run.")] = 256
    max_open: Annotated[_Count, _doc("Maximum number of open runs.")] = 10_000
    history_tokens: Annotated[
        _CountOrNone, _doc("Maximum size of the session history in the prompt; 0: no history.")
    ] = 32_000
    compact_at_percent: Annotated[
        _Percent,
        _doc(
            "Share of the history or of the model's window at which a session is "
            "summarised; 0: never."
        ),
    ] = 60
    compaction_model: Annotated[
        str, _doc("Model that drafts summaries; empty: they are made without a model.")
    ] = ""
    queue_cap: Annotated[_Count, _doc("Maximum number of queued messages in one session.")] = 20
    debounce_ms: Annotated[
        _Pause, _doc("Time a run in queue mode collect waits for further messages; 0: none.")
    ] = 500
    drain_ms: Annotated[
        _Millis, _doc("Time that open runs have to finish when the daemon stops.")
    ] = 10_000


class ContextConfig(Section, frozen=True, kw_only=True):
    """Parts of a prompt besides the conversation."""

    project_files: Annotated[
        bool, _doc("Whether runs read AGENTS.md (or CLAUDE.md) and PALYRA.md of the workspace.")
    ] = True
    text_skills: Annotated[
        bool, _doc("Whether runs know the text skills (SKILL.md) of the workspace and the home.")
    ] = True
    clock: Annotated[bool, _doc("Whether each prompt ends with the time.")] = False
    pictures: Annotated[
        Literal["refuse", "describe"],
        _doc(
            "Pictures for a model that sees none: refuse the message, or describe them in a line."
        ),
    ] = "refuse"


class WorkspaceConfig(Section, frozen=True, kw_only=True):
    """A further folder that sessions can work in."""

    name: Annotated[str, _doc("Name that sessions and rules use.")]
    path: Annotated[str, _doc("Directory, absolute or from ~; outside of every other workspace.")]


class ToolsConfig(Section, frozen=True, kw_only=True):
    """Access of tools to files."""

    workspace: Annotated[
        str,
        _doc(
            "Directory that tools work in; empty: the current directory.  This is the workspace "
            "`default`."
        ),
    ] = ""
    workspaces: Annotated[
        tuple[WorkspaceConfig, ...],
        _doc("Further workspaces, one of which a session may name: tables of name, path."),
    ] = ()


class Wasm(Section, frozen=True, kw_only=True):
    """Skills: WASM modules that run in sandboxed worker processes."""

    enabled: Annotated[bool, _doc("Offer the tools of installed skills.")] = True
    workers: Annotated[
        _Few, _doc("Number of idle worker processes, once a skill is installed.")
    ] = 2


class RetentionConfig(Section, frozen=True, kw_only=True):
    """Bounds that `palyra retention apply` and the task `cleanup` enforce; 0: none.  What is in use is kept."""

    tapes_days: Annotated[
        _DaysOrNone, _doc("Days after its end that the content of a run is kept.")
    ] = 0
    tapes_mib: Annotated[
        _MibOrNone, _doc("Maximum size of the content of all tapes; the oldest go first.")
    ] = 0
    artifacts_days: Annotated[
        _DaysOrNone, _doc("Days that complete outputs are kept; also enforced at writes.")
    ] = 30
    artifacts_mib: Annotated[
        _MibOrNone, _doc("Maximum size of all complete outputs; also enforced at writes.")
    ] = 1_024
    checkpoints_days: Annotated[
        _DaysOrNone, _doc("Days that file checkpoints are kept; also enforced at writes.")
    ] = 30
    checkpoints_mib: Annotated[
        _MibOrNone, _doc("Maximum size of all file checkpoints; also enforced at writes.")
    ] = 1_024
    incidents_days: Annotated[_DaysOrNone, _doc("Days that resolved incidents are kept.")] = 0
    incidents: Annotated[_CountOrNone, _doc("Maximum number of resolved incidents.")] = 0
    tasks_days: Annotated[
        _DaysOrNone, _doc("Days that ended tasks are kept with their results; at most 7.")
    ] = 0
    tasks: Annotated[_CountOrNone, _doc("Maximum number of ended tasks.")] = 0
    daily: Annotated[
        bool, _doc("Apply the bounds once a day (UTC), by a task of the kind `cleanup`.")
    ] = False


class DocumentsConfig(Section, frozen=True, kw_only=True):
    """Workspace documents: MEMORY.md, PALYRA.md and USER.md."""

    write: Annotated[
        bool,
        _doc("Let the daemon write learned entries into the documents of the workspace."),
    ] = False


class FetchCredential(Section, frozen=True, kw_only=True):
    """A credential for one host; the secret itself is stored elsewhere."""

    name: Annotated[str, _doc("Name that a model uses for the credential.")]
    secret: Annotated[str, _doc("Reference to the secret: env:, file:, keyring: or vault:.")]
    host: Annotated[str, _doc("Only host that receives the secret.")]
    header: Annotated[str, _doc("Request header that carries the secret.")] = "authorization"
    prefix: Annotated[str, _doc("Text in front of the secret in that header.")] = "Bearer "


class Fetch(Section, frozen=True, kw_only=True):
    """Requests of web tools, and of programs that have network access."""

    ports: Annotated[tuple[_Port, ...], _doc("Ports that requests may use.")] = (80, 443)
    private: Annotated[
        tuple[str, ...],
        _doc("host:port pairs that are allowed although they are private or loopback addresses."),
    ] = ()
    ca_file: Annotated[str, _doc("PEM file with additional certificate authorities.")] = ""
    credentials: Annotated[
        tuple[FetchCredential, ...],
        _doc("Credentials: tables of name, secret, host, header, prefix."),
    ] = ()


class Network(Section, frozen=True, kw_only=True):
    """Connections to providers, MCP servers by URL, and of web tools."""

    proxy: Annotated[
        str,
        _doc("Proxy, http://HOST:PORT, or none; empty: HTTPS_PROXY and HTTP_PROXY decide."),
    ] = ""
    no_proxy: Annotated[
        tuple[str, ...],
        _doc("Hosts, domains and networks that are reached directly, besides those of NO_PROXY."),
    ] = ()
    ca_file: Annotated[
        str,
        _doc("PEM file with additional certificate authorities, besides those of SSL_CERT_FILE."),
    ] = ""


class McpServerConfig(Section, frozen=True, kw_only=True):
    """One server of the Model Context Protocol: a program or an address."""

    name: Annotated[str, _doc("Name of the server; its tools are called mcp:NAME.TOOL.")]
    command: Annotated[tuple[str, ...], _doc("Program to start, with its arguments.")] = ()
    environment: Annotated[
        tuple[str, ...],
        _doc("Environment of the program as NAME=TEXT; TEXT may be a reference to a secret."),
    ] = ()
    url: Annotated[str, _doc("Address of a server that runs elsewhere.")] = ""
    token: Annotated[str, _doc("Reference to the bearer token for that address.")] = ""
    sandbox: Annotated[
        Literal["jail", "none"],
        _doc("Where the program runs; none: unconfined, with the daemon's own rights."),
    ] = "jail"
    workspace: Annotated[
        Literal["none", "read", "write"], _doc("Access to a workspace from the jail.")
    ] = "none"
    works_in: Annotated[
        str,
        _doc("Name of that workspace; only sessions that work in it have the server's tools."),
    ] = "default"
    folders: Annotated[
        tuple[str, ...], _doc("Additional folders that are readable in the jail.")
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        _doc("Hosts that the program may reach, as host or host:port; empty: no network."),
    ] = ()
    risk: Annotated[
        Literal["low", "medium", "high", "critical"], _doc("Minimum risk of the server's tools.")
    ] = "high"
    capabilities: Annotated[
        tuple[str, ...],
        _doc(
            "Capabilities of the server's tools in addition to those that follow from the other keys."
        ),
    ] = ()
    read_only: Annotated[
        tuple[str, ...],
        _doc(
            "Tools whose own declaration to be read-only is trusted.  In the jail without `hosts` they run "
            "without a question; elsewhere a call is also a message to the server, and asks."
        ),
    ] = ()
    left_out: Annotated[tuple[str, ...], _doc("Tools that are not offered.")] = ()
    deadline_s: Annotated[_Deadline, _doc("Maximum duration of a call.")] = 60
    open_files: Annotated[_Count, _doc("Maximum number of open files of each process.")] = 1_024
    address_space_mib: Annotated[
        _MibOrNone, _doc("Address space of each process; 0: unlimited. Node needs 4096.")
    ] = 4_096
    memory_mib: Annotated[
        _Mib | None, _doc("Memory of all its processes together; default: as in [sandbox].")
    ] = None


class Mcp(Section, frozen=True, kw_only=True):
    """Servers of the Model Context Protocol; they need the extra `mcp`."""

    servers: Annotated[
        tuple[McpServerConfig, ...],
        _doc("Servers: tables of name, command or url, and their permissions."),
    ] = ()


class SandboxConfig(Section, frozen=True, kw_only=True):
    """Sandbox of programs, with the resource limits of each command."""

    min_level: Annotated[
        Literal["A", "B"],
        _doc(
            "Weakest isolation level that programs may run at; B: without namespaces (docs/security.md)."
        ),
    ] = "A"
    environment: Annotated[
        tuple[str, ...],
        _doc(
            "Variables of the daemon's environment that programs inherit, in addition to PATH and HOME."
        ),
    ] = ()
    hosts: Annotated[
        tuple[str, ...],
        _doc("Hosts that programs may reach, as host or host:port; empty: no network."),
    ] = ()
    folders: Annotated[
        tuple[str, ...],
        _doc("Folders of toolchains outside of the system's that programs see, read-only."),
    ] = ()
    path: Annotated[
        tuple[str, ...],
        _doc("Folders that programs search for programs before the system's (a prefix of PATH)."),
    ] = ()
    deadline_s: Annotated[
        _Seconds, _doc("Maximum duration of a program that a call can ask for.")
    ] = 600
    memory_mib: Annotated[_Mib, _doc("Memory of all processes of one command together.")] = 896
    address_space_mib: Annotated[
        _MibOrNone, _doc("Address space of each process; 0: unlimited. Node needs 4096.")
    ] = 1_024
    processes: Annotated[
        _Count, _doc("Maximum number of processes and threads of one command.")
    ] = 512
    open_files: Annotated[_Count, _doc("Maximum number of open files of each process.")] = 1_024
    file_mib: Annotated[_Mib, _doc("Maximum size of a file that a command writes.")] = 64
    cpu_s: Annotated[_Seconds, _doc("CPU time of each process.")] = 120
    temporary_mib: Annotated[
        _Mib, _doc("Size of one command's temporary directory; its HOME has the same limit.")
    ] = 64


class Secrets(Section, frozen=True, kw_only=True):
    """The vault of secrets."""

    passphrase: Annotated[
        str,
        _doc("Reference to the vault's passphrase; empty: use a key file in the data directory."),
    ] = ""


Api = Literal["chat", "responses", "anthropic", "gemini", "azure", "bedrock"]  # dialects of models


class ModelProvider(Section, frozen=True, kw_only=True):
    """A model provider; a preset (openai, anthropic, gemini, ollama …) needs only a name."""

    name: Annotated[str, _doc("Name of the provider; its models are called NAME/MODEL.")]
    api: Annotated[
        Literal["", Api],
        _doc("Dialect of its API; empty: the one known for the name, else chat."),
    ] = ""
    base_url: Annotated[
        str, _doc("Address including the version; empty: the one known for the name.")
    ] = ""
    key: Annotated[
        str, _doc("Reference to the API key; empty: the variable known for the name.")
    ] = ""
    api_version: Annotated[str, _doc("Version of Azure's API, such as 2024-10-21.")] = "2024-10-21"
    region: Annotated[_Region, _doc("AWS region of Bedrock.")] = "us-east-1"
    key_id: Annotated[
        str,
        _doc("Id of the AWS access key whose secret is `key`, or a reference; empty: an API key."),
    ] = ""
    session: Annotated[
        str, _doc("Reference to the session token of a temporary AWS access key.")
    ] = ""
    proxy: Annotated[
        str, _doc("Its proxy, or none; empty: that of `network`, or of the environment.")
    ] = ""
    ca_file: Annotated[
        str, _doc("PEM file with its certificate authority; empty: that of `network`.")
    ] = ""
    models: Annotated[
        tuple[str, ...], _doc("Models shown in lists; others can be used as well.")
    ] = ()
    max_tokens: Annotated[
        _CountOrNone, _doc("Maximum length of an answer; 0: the provider's own limit.")
    ] = 0
    stall_s: Annotated[_Seconds, _doc("Maximum silence within an answer.")] = 60
    parallel: Annotated[_Count, _doc("Maximum number of concurrent calls.")] = 4
    parallel_per_key: Annotated[
        _Count, _doc("Maximum number of concurrent calls with one key.")
    ] = 2


class ModelRoute(Section, frozen=True, kw_only=True):
    """A model that runs can be routed to, with its capabilities."""

    model: Annotated[str, _doc("Name of the model, PROVIDER/NAME.")]
    vision: Annotated[bool, _doc("The model accepts images.")] = False
    json: Annotated[bool, _doc("The model has a JSON mode.")] = True
    tools: Annotated[bool, _doc("The model calls tools.")] = True
    window: Annotated[
        _Window, _doc("Size of the context window; 0: the published one, if any.")
    ] = 0
    tier: Annotated[
        _Tier, _doc("Difficulty of the tasks it suits: 1 simple, 2 ordinary, 3 demanding.")
    ] = 2
    failover: Annotated[
        tuple[str, ...], _doc("Models that replace it when it fails, even if a client named it.")
    ] = ()


class Models(Section, frozen=True, kw_only=True):
    """Models, providers and routing."""

    default: Annotated[str, _doc("Model for runs that name none.")] = "scripted"
    scripts: Annotated[str, _doc("JSON file with scripts for the scripted model.")] = ""
    embeddings: Annotated[
        str, _doc("Embedding model: PROVIDER/NAME, or embedded for the built-in one.")
    ] = "embedded"
    embedding_aliases: Annotated[
        tuple[str, ...],
        _doc(
            "Other names that clients may use for the embedding model, as their programs have it."
        ),
    ] = ()
    providers: Annotated[
        tuple[ModelProvider, ...],
        _doc("Providers: tables of name, key and the provider's other settings."),
    ] = ()
    routing: Annotated[
        Literal["suggest", "dry_run", "enforced"],
        _doc(
            "Effect of routing: record a suggestion, record the decision, or use the chosen model."
        ),
    ] = "suggest"
    routes: Annotated[
        tuple[ModelRoute, ...],
        _doc("Routes: tables of model and capabilities, in order of preference."),
    ] = ()
    failover: Annotated[
        tuple[str, ...], _doc("Models that replace a failing model, in order.")
    ] = ()


class ModelPrice(Section, frozen=True, kw_only=True):
    """Prices of a model from a given day on, per million tokens: "$3.00", or micro-dollars."""

    model: Annotated[str, _doc("Name of the model, PROVIDER/NAME, or a prefix followed by *.")]
    input: Annotated[_Micros | _Dollars, _doc("Price of a million input tokens.")]
    output: Annotated[_Micros | _Dollars, _doc("Price of a million output tokens.")]
    cached_input: Annotated[
        _Micros | _Dollars | None,
        _doc("Price of a million cached input tokens; default: as input."),
    ] = None
    cache_write: Annotated[
        _Micros | _Dollars | None,
        _doc("Price of a million tokens written to the cache; default: as input."),
    ] = None
    since: Annotated[date, _doc("First day that the prices apply, in UTC.")] = date(1970, 1, 1)
    above: Annotated[
        _Window, _doc("Tokens of input that a call must exceed for this entry to apply.")
    ] = 0


class BudgetConfig(Section, frozen=True, kw_only=True):
    """A limit on tokens or money in a window of time."""

    id: Annotated[_Name, _doc("Id of the budget.")]
    scope: Annotated[
        Literal["global", "principal", "agent", "session", "run"],
        _doc("Calls that count are grouped by this."),
    ] = "global"
    subject: Annotated[
        str,
        _doc("Principal, agent or session that the budget applies to; *: one account for each."),
    ] = "*"
    metric: Annotated[
        Literal["tokens", "usd_micros"],
        _doc('Unit of the limits; money is in micro-dollars, or in dollars such as "$5.00".'),
    ] = "tokens"
    window: Annotated[
        Literal["run", "hour", "day", "month", "sliding"],
        _doc("Period after which counting starts again, in UTC."),
    ] = "day"
    window_s: Annotated[_SecondsOrNone, _doc("Length of a sliding window.")] = 0
    soft: Annotated[_Amount | _Dollars, _doc("Amount from which an alert is sent; 0: never.")] = 0
    hard: Annotated[_Amount | _Dollars, _doc("Amount from which the action applies; 0: never.")] = 0
    action: Annotated[
        Literal["warn", "ask", "block"],
        _doc("Action at the hard limit: warn, ask for approval, or refuse the call."),
    ] = "block"


class UsageConfig(Section, frozen=True, kw_only=True):
    """Prices of models, and budgets."""

    prices: Annotated[
        tuple[ModelPrice, ...],
        _doc("Prices: tables of model, input, output, cached_input, cache_write, since, above."),
    ] = ()
    budgets: Annotated[
        tuple[BudgetConfig, ...],
        _doc("Budgets: tables of id, scope, metric, window, soft, hard, action."),
    ] = ()
    reserve_tokens: Annotated[
        _Count, _doc("Expected length of an answer for reservations, if max_tokens is not set.")
    ] = 8_192


_HealingMode = Literal["disabled", "observe_only", "auto"]
_DomainMode = Literal["default", "disabled", "observe_only", "auto"]


class HealingConfig(Section, frozen=True, kw_only=True):
    """Self-healing: what happens when something is stuck."""

    mode: Annotated[
        _HealingMode, _doc("disabled records no symptoms, observe_only records them, auto acts.")
    ] = "observe_only"
    run: Annotated[_DomainMode, _doc("Mode for runs.")] = "default"
    task: Annotated[_DomainMode, _doc("Mode for background tasks.")] = "default"
    approval: Annotated[_DomainMode, _doc("Mode for approvals.")] = "default"
    provider: Annotated[_DomainMode, _doc("Mode for model providers.")] = "default"
    store: Annotated[_DomainMode, _doc("Mode for the journal.")] = "default"
    memory: Annotated[_DomainMode, _doc("Mode for the memory and its index.")] = "default"
    artifact: Annotated[_DomainMode, _doc("Mode for stored outputs.")] = "default"
    tool_runtime: Annotated[
        _DomainMode, _doc("Mode for the services that tools need, such as the sandbox.")
    ] = "default"
    edge: Annotated[_DomainMode, _doc("Mode for connections and everything else.")] = "default"
    stuck_ms: Annotated[
        _Millis, _doc("Time without progress after which a run counts as stuck.")
    ] = 120_000
    sweep_ms: Annotated[
        _Sweep, _doc("Time between two sweeps; 0: 15 s, and 5 s if a domain is in mode auto.")
    ] = 0


class Notify(Section, frozen=True, kw_only=True):
    """Addresses that learn that a question waits for a person; what it is about is not sent."""

    webhook: Annotated[
        str,
        _doc(
            "Address that gets a POST of JSON (text, count, url), or a reference to one, such as "
            "vault:NAME; empty: none."
        ),
    ] = ""
    topic: Annotated[
        str,
        _doc(
            "Address of an ntfy topic, which gets a POST of text, or a reference to one; empty: none."
        ),
    ] = ""
    after_s: Annotated[_Seconds, _doc("Time that a question waits before a notice is sent.")] = 5
    push_services: Annotated[
        tuple[str, ...],
        _doc(
            "Hosts of the push services that browsers may name, *. for any name below one; empty: no "
            "browser rings.  Reached by https, but for the address of a loopback service, as "
            "http://127.0.0.1:PORT."
        ),
    ] = SERVICES


class PolicyConfig(Section, frozen=True, kw_only=True):
    """Policies."""

    dir: Annotated[
        str,
        _doc(
            "Directory of user policies (*.cedar); empty: policies/ next to the configuration file."
        ),
    ] = ""


class Logging(Section, frozen=True, kw_only=True):
    """Log output on standard error."""

    format: Annotated[
        Literal["console", "json"], _doc("console for people, json for programs.")
    ] = "console"
    level: Annotated[
        Literal["debug", "info", "warning", "error"], _doc("Lowest level that is logged.")
    ] = "info"


SECTIONS: dict[str, type[Section]] = {
    "server": Server,
    "journal": JournalConfig,
    "runs": RunsConfig,
    "context": ContextConfig,
    "memory": MemoryConfig,
    "learning": LearningConfig,
    "tasks": TasksConfig,
    "tools": ToolsConfig,
    "retention": RetentionConfig,
    "documents": DocumentsConfig,
    "wasm": Wasm,
    "fetch": Fetch,
    "network": Network,
    "mcp": Mcp,
    "sandbox": SandboxConfig,
    "secrets": Secrets,
    "models": Models,
    "usage": UsageConfig,
    "notify": Notify,
    "policy": PolicyConfig,
    "healing": HealingConfig,
    "logging": Logging,
}
