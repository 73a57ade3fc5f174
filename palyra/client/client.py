"""The client: one typed method per method of protocol v1, grouped by noun."""

from palyra.client.approvals import ApprovalMethods
from palyra.client.files import FileMethods
from palyra.client.incidents import IncidentMethods
from palyra.client.memory import MemoryMethods
from palyra.client.operations import OperationMethods
from palyra.client.registry import RegistryMethods
from palyra.client.runs import RunMethods
from palyra.client.sessions import SessionMethods
from palyra.client.skills import SkillMethods
from palyra.client.tapes import TapeMethods
from palyra.client.usage import UsageMethods


class Client(
    RunMethods,
    TapeMethods,
    ApprovalMethods,
    SessionMethods,
    FileMethods,
    RegistryMethods,
    SkillMethods,
    UsageMethods,
    IncidentMethods,
    MemoryMethods,
    OperationMethods,
):
    """Client of one daemon over a connection that is re-established when lost.

    Every method raises the PalyraError of an error reply.  Mutations carry an idempotency key
    (given, or generated), so they are retried safely when the connection is lost before the reply;
    other requests then raise Unavailable.  Deadlines belong to the caller:
    `with trio.fail_after(5): await client.ping()`.
    """
