// A typed call over a WebSocket of the browser or of Node.  The first request is `connect`.
import type { Events, Method, Params, Result, RpcError } from "./palyra";

type Reply<M extends Method> =
  | { jsonrpc: "2.0"; id: number; result: Result<M> }
  | { jsonrpc: "2.0"; id: number; error: RpcError };

let lastId = 0;

export function call<M extends Method>(
  socket: WebSocket,
  method: M,
  params: Params<M>,
): Promise<Result<M>> {
  const id = ++lastId;
  return new Promise((resolve, reject) => {
    const read = (message: MessageEvent<string>) => {
      const reply = JSON.parse(message.data) as Reply<M>;
      if (reply.id !== id) return; // a notification, or the reply to another call
      socket.removeEventListener("message", read);
      if ("error" in reply) reject(reply.error);
      else resolve(reply.result);
    };
    socket.addEventListener("message", read);
    socket.send(JSON.stringify({ jsonrpc: "2.0", id, method, params }));
  });
}

export async function ask(socket: WebSocket, text: string): Promise<string> {
  const started = await call(socket, "run.start", { text, idempotency_key: crypto.randomUUID() });
  return started.run_id;
}

export function describe(done: Events["run.done"]): string {
  return JSON.stringify(done);
}

// @ts-expect-error - a method that does not exist
type Nothing = Params<"run.nothing">;
// @ts-expect-error - a number is no text
export const wrong: Params<"run.start"> = { text: 3, idempotency_key: "k" };
