// Conversations by who waits for whom.  Pure.

export const GROUPS = ["Needs you", "Working", "Done"];
const LIVE = ["in_progress", "recovering", "awaiting_approval", "stranded", "queued"]; // what a conversation is known by, the first that fits

/** The rows of each group: {session, run, question}; `runs` are open or the newest ended ones, `questions` the soonest first. */
export function group(sessions, runs, questions = []) {
  const found = [[], [], []];
  const asked = new Map(questions.toReversed().map((each) => [each.session_id, each]));
  const bySession = new Map();
  for (const run of runs) {
    const before = bySession.get(run.session_id);
    if (!run.depth && (!before || rank(run) < rank(before) || (rank(run) === rank(before) && run.created_ms > before.created_ms))) bySession.set(run.session_id, run);
  }
  for (const session of sessions) {
    const run = bySession.get(session.session_id);
    const question = asked.get(session.session_id);
    const isOpen = run && LIVE.includes(run.phase);
    const needs = question || ["awaiting_approval", "stranded"].includes(run?.phase);
    if (session.archived_ms && !isOpen) continue;
    found[needs ? 0 : isOpen ? 1 : 2].push({ session, run, question });
  }
  found[0].sort((left, right) => (left.question?.expires_ms ?? Infinity) - (right.question?.expires_ms ?? Infinity));
  return found;
}

function rank({ phase }) {
  const at = LIVE.indexOf(phase);
  return at < 0 ? LIVE.length : at;
}

/** The rows whose title, key or id has the text. */
export function matching(rows, text) {
  const wanted = text.trim().toLowerCase();
  return wanted ? rows.filter(({ session: { title, key, session_id: id } }) => `${title ?? ""}\n${key ?? ""}\n${id}`.toLowerCase().includes(wanted)) : rows;
}
