// The turn that the model is in: its text as it streams, and the output of the tool that runs.
//
// Volatile: the durable event of a turn or a call takes the place of what was shown here.

import { grouped } from "../fold/text.js";
import "./live-text.js";

export class LiveTurn {
  #items = new Map(); // id -> characters so far
  #texts = {};
  #parts = {};

  constructor(onPaint) {
    const make = (tag, look, ...children) => {
      const node = Object.assign(document.createElement(tag), { className: look });
      node.append(...children);
      return node;
    };
    for (const kind of ["text", "tool_output"]) this.#texts[kind] = Object.assign(make("live-text", ""), { onPaint });
    const seq = make("span", "seq", "live");
    this.#parts = { title: make("b", ""), says: make("span", "cost") };
    this.#parts.turn = make("div", "turn live", seq, this.#parts.title, this.#parts.says, make("span", ""), make("p", "", this.#texts.text));
    this.#parts.output = make("pre", "excerpt plain", this.#texts.tool_output);
    this.element = make("div", "live-turn", this.#parts.turn, this.#parts.output);
    this.end();
  }

  /** A piece of text; `offset` says how much came before it, in characters. */
  progress({ item, kind, delta, offset }) {
    if (kind === "status") return;
    if (kind === "reasoning") {
      const sum = (this.#items.get(item) ?? 0) + delta.length;
      this.#items.set(item, sum);
      this.#parts.says.textContent = `thinking, ${grouped(sum)} characters`;
      this.#parts.turn.hidden = false;
      return;
    }
    const known = this.#items.get(item) ?? 0;
    const characters = [...delta];
    const from = offset ?? known;
    const fresh = characters.slice(Math.max(0, known - from)).join("");
    if (!this.#items.has(item) && kind === "tool_output") this.#texts.tool_output.clear();
    this.#items.set(item, Math.max(known, from + characters.length));
    if (from > known) this.#texts[kind].add(known ? " … " : "… ");
    this.#texts[kind].add(fresh);
    if (kind === "text") this.#parts.says.textContent = "";
    (kind === "text" ? this.#parts.turn : this.#parts.output).hidden = false;
  }

  /** A durable event: what it has said is no longer live. */
  event({ kind, data }) {
    if (kind === "turn.started") {
      if (this.#parts.title.textContent) this.#clear("text"); // or else this turn is under way
      this.#parts.title.textContent = `Turn ${data.turn}`;
      this.#parts.says.textContent = data.attempt > 1 ? `attempt ${data.attempt}` : "";
      this.#parts.turn.hidden = false;
    } else if (kind === "turn.completed" || kind === "turn.failed") this.#clear("text");
    else if (kind === "tool.completed") this.#clear("tool_output");
    else if (/^run\.(done|failed|cancelled)$/.test(kind)) this.end();
  }

  /** Nothing is live. */
  end() {
    this.#clear("text");
    this.#clear("tool_output");
  }

  #clear(kind) {
    this.#texts[kind].clear();
    this.#items.clear();
    if (kind === "text") this.#parts.title.textContent = "";
    (kind === "text" ? this.#parts.turn : this.#parts.output).hidden = true;
  }
}
