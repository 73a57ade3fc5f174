// In the place of Tauri's shell plugin: the part of `Command` that docs/stdio.md uses, over a child of Node.
// As there, a child's input can be written and not closed, and `kill` is SIGKILL.
import { spawn } from "node:child_process";
import { EventEmitter } from "node:events";
import { basename } from "node:path";
import { createInterface } from "node:readline";

export class Command extends EventEmitter {
  stdout = new EventEmitter();

  static sidecar(program, args = []) {
    return Object.assign(new Command(), { program: basename(program), args });
  }

  async spawn() {
    const child = spawn(this.program, this.args, { stdio: ["pipe", "pipe", "inherit"] });
    createInterface({ input: child.stdout }).on("line", (line) => this.stdout.emit("data", line));
    child.on("close", (code, signal) => this.emit("close", { code, signal }));
    await new Promise((resolve, reject) => child.once("spawn", resolve).once("error", reject));
    return {
      pid: child.pid,
      write: (text) => new Promise((resolve, reject) => child.stdin.write(text, (error) => (error ? reject(error) : resolve()))),
      kill: async () => void child.kill("SIGKILL"),
    };
  }
}
