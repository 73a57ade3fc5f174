"""The client: one typed method per method of protocol v1, grouped by noun; opened by a `connect`."""

from palyra.client.approvals import ApprovalMethods
from palyra.client.backups import BackupMethods
from palyra.client.configuration import ConfigurationMethods
from palyra.client.contexts import ContextMethods
from palyra.client.documents import DocumentMethods
from palyra.client.files import FileMethods
from palyra.client.healing import HealingMethods
from palyra.client.incidents import IncidentMethods
from palyra.client.learning import LearningMethods
from palyra.client.mcp import McpMethods
from palyra.client.memory import MemoryMethods
from palyra.client.operations import OperationMethods
from palyra.client.registry import RegistryMethods
from palyra.client.retention import RetentionMethods
from palyra.client.runs import RunMethods
from palyra.client.sessions import SessionMethods
from palyra.client.skills import SkillMethods
from palyra.client.tapes import TapeMethods
from palyra.client.tasks import TaskMethods
from palyra.client.usage import UsageMethods

PATIENCE_S = 120.0


class Client(
    RunMethods,
    TapeMethods,
    ContextMethods,
    ApprovalMethods,
    SessionMethods,
    FileMethods,
    DocumentMethods,
    RegistryMethods,
    SkillMethods,
    McpMethods,
    UsageMethods,
    ConfigurationMethods,
    HealingMethods,
    IncidentMethods,
    MemoryMethods,
    LearningMethods,
    BackupMethods,
    RetentionMethods,
    TaskMethods,
    OperationMethods,
):
    """Client of one daemon over a connection that is re-established when lost.

    Every method raises the PalyraError of an error reply.  Mutations carry an idempotency key
    (given, or generated), so they are retried safely when the connection is lost before the reply;
    other requests then raise Unavailable.  Deadlines belong to the caller:
    `with trio.fail_after(5): await client.ping()`.
    """
