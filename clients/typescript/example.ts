// Start a run, answer its approvals, print its answer.  `tsc --strict` checks this file.
import { connect, PalyraError, type ApprovalRecord, type Client, type Events, type Params } from "./client.js";

export async function ask(client: Client, text: string): Promise<string> {
  const run = await client.runs.start({ text }, { onApproval: decide });
  let answer = "";
  for await (const item of run) {
    if (item.type === "progress" && item.kind === "text") console.log(item.delta);
    if (item.type === "event" && item.kind === "message.completed") answer = item.data.text;
    if (item.type === "event" && item.kind === "run.failed") throw new Error(item.data.reason);
  }
  return answer;
}

function decide(approval: ApprovalRecord): "allow" | "deny" {
  return approval.tool === "write_file" ? "allow" : "deny";
}

export async function main(url: string, token: string): Promise<void> {
  const client = await connect({ url, token });
  try {
    console.log(await ask(client, "hello"));
    const { runs } = await client.call("run.list", { limit: 5 }, { signal: AbortSignal.timeout(5_000) });
    console.log(runs.map((run) => run.state));
    await client.call("ping");
  } catch (error) {
    if (!(error instanceof PalyraError)) throw error;
    console.error(error.code, error.field, error.retry_after_ms);
  } finally {
    await client.close();
  }
}

export async function check(client: Client): Promise<void> {
  // @ts-expect-error - a method that does not exist
  await client.call("run.nothing", {});
  // @ts-expect-error - a parameter that is required
  await client.call("run.get");
  // @ts-expect-error - a result without that member
  (await client.call("ping")).colour;
}

export function describe(done: Events["run.done"]): string {
  return done.reason;
}

// @ts-expect-error - a number is no text
export const wrong: Params<"run.start"> = { text: 3 };
