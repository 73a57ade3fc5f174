// For Node: find the daemon of this machine, or run one as a child over its standard streams.

import { spawn } from "node:child_process";
import { readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { StringDecoder } from "node:string_decoder";

import { PalyraError } from "./client.js";

const START_WITHIN_MS = 30_000; // the first start of an installation compiles its modules
const DRAIN_WITHIN_MS = 20_000; // twice the daemon's own grace

/** Return a function that finds address and token, for each connection again: the port may change. */
export function localDaemon({ home } = {}) {
  return async () => {
    const folder = home ?? process.env.PALYRA_HOME ?? defaultHome();
    const remedy = "start a daemon with `palyra up`, or name its directory as `home`";
    const { ws_url } = JSON.parse(await read(join(folder, "daemon.json"), "unavailable", remedy));
    const path = join(folder, "keys", "operator.token");
    const token = process.env.PALYRA_TOKEN || (await read(path, "unauthenticated", "set PALYRA_TOKEN"));
    return { url: ws_url, token: token.trim() };
  };
}

async function read(path, code, remedy) {
  try {
    return await readFile(path, "utf8");
  } catch (error) {
    throw new PalyraError(code, `${path} is not readable (${error.code}): ${remedy}`, { cause: error });
  }
}

function defaultHome() {
  if (process.platform === "darwin") return join(homedir(), "Library", "Application Support", "palyra");
  return join(process.env.XDG_DATA_HOME || join(homedir(), ".local", "share"), "palyra");
}

/**
 * Run `palyra serve --stdio` as a child, which needs no token.
 *
 * The child is started when the client connects, and again if it dies.  Closing the client closes
 * its standard input, so that it drains, and waits for its exit.
 */
export function childDaemon({ command = ["palyra"], home, workspace, args = [], env, stderr = "inherit" } = {}) {
  const [program, ...before] = command;
  const given = [...(home ? ["--home", home] : []), ...(workspace ? ["--workspace", workspace] : []), ...args];
  const open = ({ onMessage, onClose, signal }) =>
    new Promise((resolve, reject) => {
      const child = spawn(program, [...before, "serve", "--stdio", ...given], {
        stdio: ["pipe", "pipe", stderr],
        env: { ...process.env, ...env },
      });
      const exited = new Promise((done) => child.once("close", done));
      const close = async () => {
        child.stdin.end();
        const timer = setTimeout(() => child.kill("SIGKILL"), DRAIN_WITHIN_MS);
        await exited;
        clearTimeout(timer);
      };
      signal.addEventListener("abort", () => child.kill(), { once: true });
      child.once("spawn", () => resolve({ pid: child.pid, send: (text) => child.stdin.write(`${text}\n`), close }));
      child.once("error", (error) => {
        reject(new PalyraError("unavailable", `${program} cannot be started: ${error.message}`, { cause: error }));
      });
      child.stdin.on("error", () => {}); // its end is reported by `close`
      splitLines(child.stdout, onMessage);
      child.once("close", (code) => onClose(undefined, `${program} has ended with ${code ?? child.signalCode}`));
    });
  return { open, open_within_ms: START_WITHIN_MS };
}

function splitLines(stream, onLine) {
  const decoder = new StringDecoder("utf8"); // a character may be cut between two chunks
  let parts = [];
  stream.on("data", (chunk) => {
    const lines = decoder.write(chunk).split("\n");
    for (let at = 0; at < lines.length - 1; at++) {
      onLine(parts.join("") + lines[at]);
      parts = [];
    }
    parts.push(lines.at(-1));
  });
}
