// Types of node.js.
import type { Endpoint } from "./client.js";

/** Find the daemon of this machine by its directory: `home`, $PALYRA_HOME or the platform's. */
export function localDaemon(options?: { home?: string }): () => Promise<Endpoint>;

export interface ChildOptions {
  /** The program and its first arguments; `["palyra"]` if it is left out. */
  command?: string[];
  home?: string;
  workspace?: string;
  /** More arguments of `palyra serve --stdio`. */
  args?: string[];
  /** Added to this process's environment. */
  env?: Record<string, string>;
  /** Where its log goes. */
  stderr?: "inherit" | "ignore" | number;
}

/** Run a daemon as a child; it is started again if it dies, and drains when the client is closed. */
export function childDaemon(options?: ChildOptions): Endpoint;
