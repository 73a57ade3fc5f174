"""Tables, indexes and triggers of the journal, as a list of migrations.

A migration is one transaction: it succeeds as a whole or leaves the file unchanged.  A published
migration is never edited; a change is a new migration.  Invariants that must hold for every writer
are triggers, so that the database itself refuses: a tape only grows (a recorded purge
may empty its payloads), an answered approval keeps its
answer, a terminal state is final.
"""

from collections.abc import Sequence
from contextlib import closing

import apsw

from palyra.errors import Unavailable
from palyra.store.sqlite.connection import transaction

APPLICATION_ID = 0x50414C59  # "PALY", shown by file(1)

_TAPES_AND_RECORDS = """
CREATE TABLE owner (               -- one row: who may write, and what was there last
    id INTEGER PRIMARY KEY CHECK (id = 1),
    journal_id TEXT NOT NULL,      -- binds the signed roots to this journal
    epoch INTEGER NOT NULL,        -- raised by every opening; a writer of an older one is refused
    head_position INTEGER NOT NULL,
    roots INTEGER NOT NULL,        -- lines of the roots file known to be durable
    is_clean INTEGER NOT NULL
) STRICT;
CREATE TABLE tape (
    position INTEGER PRIMARY KEY,  -- dense from 1 over all runs
    run_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    seq INTEGER NOT NULL,          -- dense from 0 within the run
    at_ms INTEGER NOT NULL,
    kind TEXT NOT NULL,
    principal TEXT NOT NULL,
    redacted INTEGER NOT NULL,
    data BLOB NOT NULL,
    hash BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX tape_by_run ON tape (run_id, seq);
CREATE TRIGGER tape_is_never_updated BEFORE UPDATE ON tape
    BEGIN SELECT RAISE(ABORT, 'a tape is append-only'); END;
CREATE TRIGGER tape_is_never_deleted BEFORE DELETE ON tape
    BEGIN SELECT RAISE(ABORT, 'a tape is append-only'); END;

CREATE TABLE runs (
    run_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    state TEXT NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX runs_by_principal ON runs (principal, run_id);
CREATE INDEX runs_by_session ON runs (session_id, run_id);
CREATE INDEX runs_open ON runs (run_id) WHERE state IN ('accepted', 'in_progress');

CREATE TABLE sessions (
    session_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    key TEXT,
    record TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX sessions_by_key ON sessions (principal, key) WHERE key IS NOT NULL;
CREATE INDEX sessions_by_principal ON sessions (principal, session_id);

CREATE TABLE approvals (
    approval_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    state TEXT NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX approvals_by_run ON approvals (run_id, approval_id);
CREATE INDEX approvals_pending ON approvals (approval_id) WHERE state = 'pending';

CREATE TABLE receipts (
    principal TEXT NOT NULL,
    key TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (principal, key)
) STRICT;

CREATE TABLE tokens (
    token_id TEXT PRIMARY KEY,
    sha256 TEXT NOT NULL UNIQUE,
    record TEXT NOT NULL
) STRICT;
"""

_RULES = """
CREATE INDEX receipts_by_age ON receipts (created_ms);
CREATE TRIGGER run_ends_once BEFORE UPDATE OF state ON runs
    WHEN old.state IN ('done', 'failed', 'cancelled') AND new.state <> old.state
    BEGIN SELECT RAISE(ABORT, 'the run has ended; a terminal state never changes'); END;
CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approvals
    WHEN old.state <> 'pending' AND new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the approval is answered; the first answer stands'); END;
CREATE TRIGGER receipt_is_given_once BEFORE UPDATE ON receipts
    WHEN new.created_ms - old.created_ms < 86400000 AND new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the idempotency key was used; its first receipt stands'); END;
"""

_AGENTS_AND_CHANNELS = """
CREATE TABLE agents (              -- every version there was: runs name theirs
    name TEXT NOT NULL,
    version INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (name, version)
) STRICT;
CREATE TRIGGER agent_version_stands BEFORE UPDATE ON agents
    WHEN new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the agent was changed meanwhile; the first change stands'); END;

CREATE TABLE channels (
    principal TEXT NOT NULL,
    channel TEXT NOT NULL,
    conversation_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (principal, channel, conversation_id)
) STRICT;
CREATE TRIGGER channel_changes_in_turn BEFORE UPDATE ON channels
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the channel was changed meanwhile; the first change stands'); END;

CREATE TABLE pairings (
    pairing_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    channel TEXT NOT NULL,
    sender TEXT NOT NULL,
    state TEXT NOT NULL,
    expires_ms INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX pairings_by_sender ON pairings (principal, channel, sender);
CREATE INDEX pairings_pending ON pairings (expires_ms) WHERE state = 'pending';
CREATE TRIGGER pairing_changes_in_turn BEFORE UPDATE ON pairings
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the pairing was changed meanwhile; the first change stands'); END;

ALTER TABLE sessions ADD COLUMN agent TEXT;
ALTER TABLE sessions ADD COLUMN channel TEXT;
ALTER TABLE sessions ADD COLUMN conversation_id TEXT;
CREATE UNIQUE INDEX sessions_by_conversation
    ON sessions (principal, agent, channel, conversation_id) WHERE channel IS NOT NULL;
"""

_GRANTS = """
CREATE TABLE grants (
    grant_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    session_id TEXT NOT NULL,
    expires_ms INTEGER,
    ended_ms INTEGER,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX grants_live ON grants (grant_id) WHERE ended_ms IS NULL;
CREATE TRIGGER grant_only_ends BEFORE UPDATE ON grants
    WHEN new.record <> old.record AND (old.ended_ms IS NOT NULL
        OR json_remove(new.record, '$.ended_ms', '$.ended_by')
            <> json_remove(old.record, '$.ended_ms', '$.ended_by'))
    BEGIN SELECT RAISE(ABORT, 'a grant can only end, and its end stands'); END;

ALTER TABLE approvals ADD COLUMN covers INTEGER NOT NULL DEFAULT 1; -- calls it is for
ALTER TABLE approvals ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;   -- calls started on it
DROP TRIGGER approval_is_answered_once;
CREATE TRIGGER approval_is_answered_once BEFORE UPDATE ON approvals
    WHEN old.state <> 'pending' AND new.record <> old.record
        AND (old.state <> 'allowed' OR new.uses <= old.uses OR new.uses > old.covers
            OR json_remove(new.record, '$.uses') <> json_remove(old.record, '$.uses'))
    BEGIN SELECT RAISE(ABORT, 'the approval is answered; the first answer stands'); END;
"""

_LEDGER_AND_BUDGETS = """
CREATE TABLE usage (               -- one row for each model call that came to an end
    run_id TEXT NOT NULL,
    turn INTEGER NOT NULL,
    attempt INTEGER NOT NULL,
    at_ms INTEGER NOT NULL,
    principal TEXT NOT NULL,
    agent TEXT NOT NULL,
    session_id TEXT NOT NULL,
    model TEXT NOT NULL,
    outcome TEXT NOT NULL,
    input_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL,
    cached_tokens INTEGER NOT NULL,
    is_estimate INTEGER NOT NULL,
    cost_usd_micros INTEGER,       -- NULL: unknown
    record TEXT NOT NULL,
    PRIMARY KEY (run_id, turn, attempt)
) STRICT;
CREATE INDEX usage_by_time ON usage (at_ms);
CREATE TRIGGER usage_is_written_once BEFORE UPDATE ON usage
    WHEN new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the call is in the ledger; its first line stands'); END;

CREATE TABLE budgets (
    budget_id TEXT PRIMARY KEY,
    revision INTEGER NOT NULL,
    is_deleted INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE TRIGGER budget_changes_in_turn BEFORE UPDATE ON budgets
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the budget was changed meanwhile; the first change stands'); END;
"""

_INCIDENTS = """
CREATE TABLE incidents (
    incident_id TEXT PRIMARY KEY,
    domain TEXT NOT NULL,
    state TEXT NOT NULL,
    resolved_ms INTEGER,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX incidents_open ON incidents (incident_id) WHERE state <> 'resolved';
CREATE INDEX incidents_by_end ON incidents (resolved_ms) WHERE state = 'resolved';
CREATE TRIGGER incident_is_resolved_once BEFORE UPDATE ON incidents
    WHEN old.state = 'resolved' AND new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the incident is resolved; its end stands'); END;
"""

_MEMORY = """
CREATE TABLE memories (            -- one row for each item; the record is made of its columns
    row INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given again: the vector index refers to it
    memory_id TEXT NOT NULL UNIQUE,
    principal TEXT NOT NULL,
    kind TEXT NOT NULL,
    text TEXT NOT NULL,
    scope TEXT NOT NULL,
    channel TEXT,
    session_id TEXT,
    author TEXT,
    at_ms INTEGER NOT NULL,
    tags TEXT NOT NULL,            -- JSON array
    confidence_bps INTEGER NOT NULL,
    source TEXT NOT NULL,
    lineage TEXT NOT NULL,         -- JSON array
    trust TEXT NOT NULL,
    pinned INTEGER NOT NULL,
    never_recall INTEGER NOT NULL,
    valid_from_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    superseded_by TEXT,
    superseded_ms INTEGER,
    text_hash TEXT NOT NULL,
    revision INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    action TEXT NOT NULL,
    previous_row INTEGER,          -- neighbours in the conversation
    next_row INTEGER,
    record TEXT GENERATED ALWAYS AS (json_object(
        'memory_id', memory_id, 'principal', principal, 'kind', kind, 'text', text,
        'scope', scope, 'channel', channel, 'session_id', session_id, 'author', author,
        'at_ms', at_ms, 'tags', json(tags), 'confidence_bps', confidence_bps, 'source', source,
        'lineage', json(lineage), 'trust', trust, 'pinned', json(iif(pinned, 'true', 'false')),
        'never_recall', json(iif(never_recall, 'true', 'false')),
        'valid_from_ms', valid_from_ms, 'expires_ms', expires_ms,
        'superseded_by', superseded_by, 'superseded_ms', superseded_ms, 'text_hash', text_hash,
        'revision', revision, 'created_ms', created_ms, 'changed_ms', changed_ms,
        'changed_by', changed_by, 'action', action)) VIRTUAL
) STRICT;
CREATE INDEX memories_by_principal ON memories (principal, memory_id);
CREATE INDEX memories_by_text ON memories (principal, text_hash);
CREATE INDEX memories_by_session ON memories (principal, session_id, at_ms, row)
    WHERE session_id IS NOT NULL;
CREATE INDEX memories_by_end ON memories (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX memories_by_successor ON memories (superseded_by) WHERE superseded_by IS NOT NULL;
CREATE TRIGGER memory_changes_in_turn BEFORE UPDATE OF revision ON memories
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the memory was changed meanwhile; the first change stands'); END;

CREATE TABLE memory_versions (     -- the earlier revisions of each item
    memory_id TEXT NOT NULL,
    revision INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (memory_id, revision)
) STRICT;
CREATE TRIGGER memory_keeps_versions AFTER UPDATE OF revision ON memories
    BEGIN INSERT INTO memory_versions VALUES (old.memory_id, old.revision, old.record); END;

CREATE TABLE memory_log (          -- one line for each change, without text
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    principal TEXT NOT NULL,
    memory_id TEXT NOT NULL,
    action TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    by TEXT NOT NULL
) STRICT;
CREATE INDEX memory_log_by_principal ON memory_log (principal, entry);
CREATE INDEX memory_log_by_item ON memory_log (memory_id, entry);

CREATE TABLE memory_vectors (
    row INTEGER PRIMARY KEY REFERENCES memories (row) ON DELETE CASCADE,
    embedder TEXT NOT NULL,
    scale REAL NOT NULL,           -- of one step of a component
    vector BLOB NOT NULL           -- int8 components
) STRICT;

CREATE TABLE memory_uses (         -- the recalls of each run
    use_id TEXT PRIMARY KEY,
    run_id TEXT NOT NULL,
    session_id TEXT NOT NULL,
    principal TEXT NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX memory_uses_by_session ON memory_uses (session_id, use_id);
CREATE INDEX memory_uses_by_run ON memory_uses (run_id, use_id);
CREATE INDEX memory_uses_by_principal ON memory_uses (principal, use_id);

-- rowid = row.  Without content: an entry is rewritten from the row of the item.
CREATE VIRTUAL TABLE memory_fts USING fts5 (
    text, "when",
    content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
"""

_SESSION_CHECKPOINTS = """
CREATE TABLE session_checkpoints (
    checkpoint_id TEXT PRIMARY KEY,
    session_id TEXT NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX session_checkpoints_by_session ON session_checkpoints (session_id, checkpoint_id);
CREATE TRIGGER session_checkpoint_stands BEFORE UPDATE ON session_checkpoints
    WHEN new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the checkpoint exists; its first record stands'); END;
"""

_DOCUMENTS = """
CREATE TABLE documents (           -- versions of workspace documents
    workspace TEXT NOT NULL,
    document TEXT NOT NULL,
    version INTEGER NOT NULL,
    is_pending INTEGER NOT NULL,   -- the file is as before or as after this version
    scrubs INTEGER NOT NULL,
    record TEXT NOT NULL,
    PRIMARY KEY (workspace, document, version)
) STRICT;
CREATE TRIGGER document_version_stands BEFORE UPDATE ON documents
    WHEN new.record <> old.record AND NOT old.is_pending AND new.scrubs <= old.scrubs
    BEGIN SELECT RAISE(ABORT, 'the document was changed meanwhile; the first change stands'); END;
CREATE TRIGGER document_versions_are_limited AFTER INSERT ON documents
    BEGIN DELETE FROM documents WHERE workspace = new.workspace AND document = new.document
        AND version <= new.version - 100; END;
"""

_TURNS = """
CREATE TABLE turns (               -- messages and answers that are in the search index; text: tape
    row INTEGER PRIMARY KEY AUTOINCREMENT,  -- never given again: the vector index refers to it
    run_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    session_id TEXT NOT NULL,
    is_user INTEGER NOT NULL,
    chars INTEGER NOT NULL,
    UNIQUE (run_id, seq)
) STRICT;
CREATE INDEX turns_by_session ON turns (session_id, row);
CREATE TABLE turn_vectors (
    row INTEGER PRIMARY KEY REFERENCES turns (row) ON DELETE CASCADE,
    embedder TEXT NOT NULL,
    scale REAL NOT NULL,           -- of one step of a component
    vector BLOB NOT NULL           -- int8 components
) STRICT;
CREATE VIRTUAL TABLE turn_fts USING fts5 (  -- rowid = row
    text, "when",
    content = '', contentless_delete = 1, tokenize = 'porter unicode61 remove_diacritics 2'
);
CREATE TABLE turn_log (            -- rows added and deleted, in order
    entry INTEGER PRIMARY KEY AUTOINCREMENT,
    row INTEGER NOT NULL
) STRICT;
CREATE TABLE turn_mark (           -- the tapes are indexed up to this position
    id INTEGER PRIMARY KEY CHECK (id = 1),
    position INTEGER NOT NULL
) STRICT;
INSERT INTO turn_mark VALUES (1, 0);
CREATE TRIGGER turn_is_added AFTER INSERT ON turns
    BEGIN INSERT INTO turn_log (row) VALUES (new.row); END;
CREATE TRIGGER turn_is_deleted AFTER DELETE ON turns BEGIN
    DELETE FROM turn_fts WHERE rowid = old.row;
    INSERT INTO turn_log (row) VALUES (old.row);
END;
-- What leaves a tape, or is changed there, leaves the index in the same transaction.
CREATE TRIGGER turn_leaves_with_its_event AFTER DELETE ON tape
    BEGIN DELETE FROM turns WHERE run_id = old.run_id AND seq = old.seq; END;
CREATE TRIGGER turn_leaves_with_its_text AFTER UPDATE OF data ON tape
    BEGIN DELETE FROM turns WHERE run_id = old.run_id AND seq = old.seq; END;

CREATE VIEW turn_items AS          -- turns in the form of memories
SELECT
    t.row, t.run_id || '/' || t.seq AS memory_id, e.principal, 'turn' AS kind,
    substr(CAST(e.data AS TEXT) ->> '$.text', 1, 16384) AS text, 'principal' AS scope,
    CASE WHEN s.channel IS NULL THEN '' ELSE json_array(s.channel, s.conversation_id) END AS channel,
    t.session_id, iif(t.is_user, 'user', 'assistant') AS author, e.at_ms, '[]' AS tags,
    '' AS text_hash, e.at_ms AS valid_from_ms, NULL AS expires_ms, NULL AS superseded_by,
    NULL AS superseded_ms, 0 AS never_recall, t.chars,
    (SELECT max(n.row) FROM turns AS n WHERE n.session_id = t.session_id AND n.row < t.row)
        AS previous_row,
    (SELECT min(n.row) FROM turns AS n WHERE n.session_id = t.session_id AND n.row > t.row)
        AS next_row,
    json_object('memory_id', t.run_id || '/' || t.seq, 'principal', e.principal, 'kind', 'turn',
        'text', substr(CAST(e.data AS TEXT) ->> '$.text', 1, 16384), 'session_id', t.session_id,
        'author', iif(t.is_user, 'user', 'assistant'), 'at_ms', e.at_ms, 'source', 'conversation',
        'lineage', json_array(
            json_object('run_id', t.run_id, 'first_seq', t.seq, 'last_seq', t.seq)),
        'trust', iif(t.is_user, 'trusted_local', 'mixed'), 'valid_from_ms', e.at_ms,
        'text_hash', '', 'created_ms', e.at_ms, 'changed_ms', e.at_ms,
        'changed_by', e.principal) AS record
FROM turns AS t CROSS JOIN tape AS e ON e.run_id = t.run_id AND e.seq = t.seq
    CROSS JOIN sessions AS s ON s.session_id = t.session_id;
"""
_PURGES = """
DROP TRIGGER tape_is_never_updated;
CREATE TRIGGER tape_is_never_updated BEFORE UPDATE ON tape
    WHEN NOT (new.position = old.position AND new.run_id = old.run_id
        AND new.session_id = old.session_id AND new.seq = old.seq AND new.at_ms = old.at_ms
        AND new.kind = old.kind AND new.principal = old.principal
        AND new.redacted = old.redacted AND new.hash = old.hash
        AND substr(old.data, 1, 11) <> CAST('{"purged":{' AS BLOB)
        AND substr(new.data, 1, 11) = CAST('{"purged":{' AS BLOB) AND length(new.data) <= 160
        AND EXISTS (SELECT 1 FROM tape AS t
            WHERE t.run_id = old.run_id AND t.seq > old.seq AND t.kind = 'run.purged'))
    BEGIN SELECT RAISE(ABORT, 'a tape is append-only'); END;

ALTER TABLE sessions ADD COLUMN is_purging INTEGER NOT NULL DEFAULT 0;
CREATE INDEX sessions_purging ON sessions (session_id) WHERE is_purging;
"""

_TEXTS_OF_RUNS = """
-- The index of turns also has what is between a message and its answer: texts of the model, messages that
-- steer, and outputs of tools, which are found by their words only and are no neighbours of turns.
ALTER TABLE turns ADD COLUMN is_output INTEGER NOT NULL DEFAULT 0;
DROP VIEW turn_items;
CREATE VIEW turn_items AS          -- turns in the form of memories
SELECT
    row, run_id || '/' || seq AS memory_id, principal, 'turn' AS kind, text, 'principal' AS scope,
    channel, session_id, author, at_ms, '[]' AS tags, '' AS text_hash, at_ms AS valid_from_ms,
    NULL AS expires_ms, NULL AS superseded_by, NULL AS superseded_ms, 0 AS never_recall, chars,
    (SELECT max(n.row) FROM turns AS n WHERE n.session_id = i.session_id AND n.row < i.row
        AND NOT n.is_output AND NOT i.is_output) AS previous_row,
    (SELECT min(n.row) FROM turns AS n WHERE n.session_id = i.session_id AND n.row > i.row
        AND NOT n.is_output AND NOT i.is_output) AS next_row,
    json_object('memory_id', run_id || '/' || seq, 'principal', principal, 'kind', 'turn',
        'text', text, 'session_id', session_id, 'author', author, 'at_ms', at_ms,
        'source', 'conversation', 'lineage', json_array(
            json_object('run_id', run_id, 'first_seq', seq, 'last_seq', seq)),
        'trust', trust, 'valid_from_ms', at_ms, 'text_hash', '', 'created_ms', at_ms,
        'changed_ms', at_ms, 'changed_by', principal) AS record
FROM (
    SELECT t.*, e.principal, e.at_ms,
        substr(coalesce(CAST(e.data AS TEXT) ->> '$.text', CAST(e.data AS TEXT) ->> '$.output'),
            1, 16384) AS text,
        iif(s.channel IS NULL, '', json_array(s.channel, s.conversation_id)) AS channel,
        CASE WHEN t.is_output THEN 'tool' WHEN t.is_user THEN 'user' ELSE 'assistant' END AS author,
        CASE WHEN t.is_output THEN coalesce(CAST(e.data AS TEXT) ->> '$.trust', 'external_untrusted')
            WHEN t.is_user THEN 'trusted_local' ELSE 'mixed' END AS trust
    FROM turns AS t CROSS JOIN tape AS e ON e.run_id = t.run_id AND e.seq = t.seq
        CROSS JOIN sessions AS s ON s.session_id = t.session_id
) AS i;
UPDATE turn_mark SET position = 0; -- the tapes are read again; turns keep their rows and vectors
"""

_TASKS = """
CREATE TABLE tasks (
    task_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    rank_ms INTEGER NOT NULL,      -- order of claiming
    not_before_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    finished_ms INTEGER,
    firing TEXT UNIQUE,            -- schedule and instant: each fires once
    revision INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX tasks_by_principal ON tasks (principal, task_id);
CREATE INDEX tasks_open ON tasks (principal) WHERE finished_ms IS NULL;
CREATE INDEX tasks_queued ON tasks (rank_ms, task_id) WHERE state = 'queued';
CREATE INDEX tasks_by_start ON tasks (not_before_ms) WHERE state = 'queued';
CREATE INDEX tasks_running ON tasks (task_id) WHERE state = 'running';
CREATE INDEX tasks_by_end ON tasks (expires_ms)
    WHERE finished_ms IS NULL AND expires_ms IS NOT NULL;
CREATE INDEX tasks_fired ON tasks (firing) WHERE finished_ms IS NULL AND firing IS NOT NULL;
CREATE INDEX tasks_ended ON tasks (finished_ms) WHERE finished_ms IS NOT NULL;
CREATE TRIGGER task_ends_once BEFORE UPDATE ON tasks WHEN old.finished_ms IS NOT NULL
    BEGIN SELECT RAISE(ABORT, 'the task has ended; its end stands'); END;
CREATE TRIGGER task_changes_in_turn BEFORE UPDATE ON tasks
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the task was changed meanwhile; the first change stands'); END;

CREATE TABLE schedules (
    schedule_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    next_ms INTEGER,
    is_removed INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX schedules_kept ON schedules (principal, schedule_id) WHERE NOT is_removed;
CREATE INDEX schedules_by_time ON schedules (next_ms) WHERE next_ms IS NOT NULL;
CREATE TRIGGER schedule_changes_in_turn BEFORE UPDATE ON schedules
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the schedule was changed meanwhile; the first change stands'); END;
"""

_LEARNING = """
CREATE TABLE candidates (          -- what runs may teach, with the words of the tape as evidence
    candidate_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    kind TEXT NOT NULL,
    state TEXT NOT NULL,
    key TEXT NOT NULL,
    memory_id TEXT,
    revision INTEGER NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX candidates_by_principal ON candidates (principal, candidate_id);
CREATE INDEX candidates_by_key ON candidates (principal, key);
CREATE INDEX candidates_by_memory ON candidates (memory_id) WHERE memory_id IS NOT NULL;
CREATE TRIGGER candidate_changes_in_turn BEFORE UPDATE OF revision ON candidates
    WHEN new.revision <> old.revision + 1
    BEGIN SELECT RAISE(ABORT, 'the candidate was changed meanwhile; the first change stands'); END;
CREATE TABLE reflections (         -- runs that were read for learning, without text
    run_id TEXT PRIMARY KEY,
    principal TEXT NOT NULL,
    record TEXT NOT NULL
) STRICT;
CREATE INDEX reflections_by_principal ON reflections (principal);
CREATE TRIGGER reflection_stands BEFORE UPDATE ON reflections
    WHEN new.record <> old.record
    BEGIN SELECT RAISE(ABORT, 'the run was read for learning; the first reading stands'); END;
"""

# A damaged record is in no index, so that it stops neither this migration nor the journal.
_BRANCHES = """
CREATE INDEX runs_by_parent
    ON runs (CASE WHEN json_valid(record) THEN record ->> '$.parent_run_id' END, run_id)
    WHERE CASE WHEN json_valid(record) THEN record ->> '$.parent_run_id' END IS NOT NULL;
DROP INDEX tasks_open;
CREATE INDEX tasks_open ON tasks (principal, kind) WHERE finished_ms IS NULL;
"""

# Queues by principal, and lists of tasks by state and kind.
_SHARES = """
DROP INDEX tasks_queued;
CREATE INDEX tasks_queued ON tasks (principal, rank_ms, task_id) WHERE state = 'queued';
CREATE INDEX tasks_by_state ON tasks (state, kind, task_id);
CREATE INDEX tasks_by_principal_and_state ON tasks (principal, state, kind, task_id);
CREATE INDEX schedules_due ON schedules (principal, next_ms, schedule_id)
    WHERE next_ms IS NOT NULL;
"""

# A purge deletes tasks and schedules that have not ended: their worker, or a firing, comes too late then.
_REMOVED_WORK = """
DELETE FROM tasks WHERE CASE WHEN json_valid(record) THEN record ->> '$.payload.session_id' END IN (
    SELECT session_id FROM sessions
    WHERE CASE WHEN json_valid(record) THEN record ->> '$.purge.purge_id' END IS NOT NULL);
DELETE FROM schedules WHERE CASE WHEN json_valid(record) THEN record ->> '$.payload.session_id' END IN (
    SELECT session_id FROM sessions
    WHERE CASE WHEN json_valid(record) THEN record ->> '$.purge.purge_id' END IS NOT NULL);
CREATE TRIGGER task_stays_removed BEFORE INSERT ON tasks
    WHEN new.revision > 1 AND NOT EXISTS (SELECT 1 FROM tasks WHERE task_id = new.task_id)
    BEGIN SELECT RAISE(ABORT, 'the task was removed meanwhile; its removal stands'); END;
CREATE TRIGGER schedule_stays_removed BEFORE INSERT ON schedules
    WHEN new.revision > 1
        AND NOT EXISTS (SELECT 1 FROM schedules WHERE schedule_id = new.schedule_id)
    BEGIN SELECT RAISE(ABORT, 'the schedule was removed meanwhile; its removal stands'); END;
CREATE TRIGGER task_is_not_for_a_purged_session BEFORE INSERT ON tasks
    WHEN new.revision = 1 AND EXISTS (
        SELECT 1 FROM sessions WHERE session_id = new.record ->> '$.payload.session_id'
            AND CASE WHEN json_valid(record) THEN record ->> '$.purge.purge_id' END IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'the session was purged; its purge stands'); END;
CREATE TRIGGER schedule_is_not_for_a_purged_session BEFORE INSERT ON schedules
    WHEN new.revision = 1 AND EXISTS (
        SELECT 1 FROM sessions WHERE session_id = new.record ->> '$.payload.session_id'
            AND CASE WHEN json_valid(record) THEN record ->> '$.purge.purge_id' END IS NOT NULL)
    BEGIN SELECT RAISE(ABORT, 'the session was purged; its purge stands'); END;
"""

_DAMAGED_TURNS = """
-- A damaged event has no text, and costs no other row its own.
DROP VIEW turn_items;
CREATE VIEW turn_items AS          -- turns in the form of memories
SELECT
    row, run_id || '/' || seq AS memory_id, principal, 'turn' AS kind, text, 'principal' AS scope,
    channel, session_id, author, at_ms, '[]' AS tags, '' AS text_hash, at_ms AS valid_from_ms,
    NULL AS expires_ms, NULL AS superseded_by, NULL AS superseded_ms, 0 AS never_recall, chars,
    (SELECT max(n.row) FROM turns AS n WHERE n.session_id = i.session_id AND n.row < i.row
        AND NOT n.is_output AND NOT i.is_output) AS previous_row,
    (SELECT min(n.row) FROM turns AS n WHERE n.session_id = i.session_id AND n.row > i.row
        AND NOT n.is_output AND NOT i.is_output) AS next_row,
    json_object('memory_id', run_id || '/' || seq, 'principal', principal, 'kind', 'turn',
        'text', text, 'session_id', session_id, 'author', author, 'at_ms', at_ms,
        'source', 'conversation', 'lineage', json_array(
            json_object('run_id', run_id, 'first_seq', seq, 'last_seq', seq)),
        'trust', trust, 'valid_from_ms', at_ms, 'text_hash', '', 'created_ms', at_ms,
        'changed_ms', at_ms, 'changed_by', principal) AS record
FROM (
    SELECT t.*, e.principal, e.at_ms,
        iif(json_valid(CAST(e.data AS TEXT)), substr(coalesce(CAST(e.data AS TEXT) ->> '$.text',
            CAST(e.data AS TEXT) ->> '$.output'), 1, 16384), NULL) AS text,
        iif(s.channel IS NULL, '', json_array(s.channel, s.conversation_id)) AS channel,
        CASE WHEN t.is_output THEN 'tool' WHEN t.is_user THEN 'user' ELSE 'assistant' END AS author,
        CASE WHEN t.is_output THEN iif(json_valid(CAST(e.data AS TEXT)),
                coalesce(CAST(e.data AS TEXT) ->> '$.trust', 'external_untrusted'),
                'external_untrusted')
            WHEN t.is_user THEN 'trusted_local' ELSE 'mixed' END AS trust
    FROM turns AS t CROSS JOIN tape AS e ON e.run_id = t.run_id AND e.seq = t.seq
        CROSS JOIN sessions AS s ON s.session_id = t.session_id
) AS i;
"""

_VECTOR_CHECKSUMS = """
ALTER TABLE memory_vectors ADD COLUMN crc INTEGER;  -- none: made by an older version
ALTER TABLE turn_vectors ADD COLUMN crc INTEGER;
"""

# Entries got words for duplicates, symbols and single characters of scripts without blanks: all of them
# are written again in the background, of turns too, which keep their rows and vectors.
_TEXT_ENTRIES = """
CREATE TABLE memory_mark (         -- rows after `row` up to `through_row` have older entries, or none
    id INTEGER PRIMARY KEY CHECK (id = 1),
    row INTEGER NOT NULL,
    through_row INTEGER NOT NULL
) STRICT;
INSERT INTO memory_mark SELECT 1, 0, coalesce(max(row), 0) FROM memories;
UPDATE turn_mark SET position = 0;
"""

MIGRATIONS: tuple[str, ...] = (  # the n-th leads to version n
    _TAPES_AND_RECORDS,
    _RULES,
    _AGENTS_AND_CHANNELS,
    _GRANTS,
    _LEDGER_AND_BUDGETS,
    _INCIDENTS,
    _MEMORY,
    _SESSION_CHECKPOINTS,
    _DOCUMENTS,
    _TURNS,
    _PURGES,
    _TEXTS_OF_RUNS,
    _TASKS,
    _LEARNING,
    _BRANCHES,
    _SHARES,
    _REMOVED_WORK,
    _DAMAGED_TURNS,
    _VECTOR_CHECKSUMS,
    _TEXT_ENTRIES,
)
SCHEMA_VERSION = len(MIGRATIONS)


def migrate(connection: apsw.Connection, migrations: Sequence[str] = MIGRATIONS) -> int | None:
    """Migrate the file; return its old version, None for a new or current file.

    Raises Unavailable for the file of another program or of a newer version, and changes nothing.
    """
    found = read_version(connection, len(migrations))
    for version in range(found, len(migrations)):
        with transaction(connection):
            connection.execute(migrations[version])
            connection.pragma("application_id", APPLICATION_ID)
            connection.pragma("user_version", version + 1)
    return found if 0 < found < len(migrations) else None


def restore_triggers(connection: apsw.Connection) -> list[str]:
    """Make triggers again that are missing or others than the schema's; return their names.

    They hold promises ("an approval is answered once") that no query repeats.
    """
    stored = _read_triggers(connection)
    with closing(apsw.Connection(":memory:")) as fresh:
        for migration in MIGRATIONS:
            fresh.execute(migration)
        wanted = _read_triggers(fresh)
    if stored == wanted:
        return []
    wrong = sorted(name for name, text in wanted.items() if stored.get(name) != text)
    with transaction(connection):
        for name in wrong:
            connection.execute(f'DROP TRIGGER IF EXISTS "{name}"')
            connection.execute(wanted[name])
    return wrong


def _read_triggers(connection: apsw.Connection) -> dict[str, str]:
    statement = "SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'"
    return dict(connection.execute(statement))


def read_version(connection: apsw.Connection, known: int) -> int:
    """Return the version of the file, 0 for a new one.

    Raises Unavailable for the file of another program or of a newer version.
    """
    version: int = connection.pragma("user_version")
    application: int = connection.pragma("application_id")
    is_empty = not connection.execute("SELECT count(*) FROM sqlite_schema").get
    if application != APPLICATION_ID and not is_empty:
        raise Unavailable(f"journal: {connection.filename}: not a journal of Palyra")
    if version > known:
        raise Unavailable(
            f"journal: the file has schema version {version}, this program knows {known}: "
            "use the newer version of Palyra"
        )
    return version
