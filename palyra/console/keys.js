// Keys: the table of the screen in view, `g` and a letter to go, `?` for help, Ctrl K for the palette.
//
// A row is `{key, what, act(event)}`; `key` is that of the event, `g n` a sequence.  Single letters act
// neither in text fields nor in dialogs, never on key repeat (arrows, j and k apart), never for events
// that no person made, and not at all when they are switched off.  A held Enter is one press: it arms a button, or
// opens a preview, and does not confirm what then has the focus.

const REPEATABLE = new Set(["ArrowDown", "ArrowUp", "j", "k", "PageDown", "PageUp"]);
const SEQUENCE_MS = 1_500;

export class Keys {
  isOff = localStorage.getItem("palyra.keys") === "off";
  #tables;
  #first;
  #firstMs = 0;

  /** `tables()` gives the tables of rows as they are now, the most specific first. */
  constructor(tables, target = document) {
    this.#tables = tables;
    target.addEventListener("keydown", (event) => this.#take(event));
  }

  get tables() {
    return this.#tables();
  }

  /** Switch single letters off or on; remembered. */
  toggle() {
    this.isOff = !this.isOff;
    localStorage.setItem("palyra.keys", this.isOff ? "off" : "on");
  }

  #take(event) {
    const { key, isTrusted, defaultPrevented } = event;
    if (!isTrusted || defaultPrevented || event.isComposing || event.altKey) return;
    if (event.repeat && key === "Enter" && !event.target.closest?.("textarea")) return event.preventDefault();
    const chord = event.ctrlKey || event.metaKey ? `Ctrl ${key.toLowerCase()}` : key;
    if (event.repeat && !REPEATABLE.has(key)) return;
    if (isTyping(event.target) && !chord.startsWith("Ctrl ") && key !== "Escape") return;
    if (document.querySelector("dialog[open]") && key !== "Escape") return;
    if (this.isOff && key.length === 1 && !chord.startsWith("Ctrl ")) return;
    const before = performance.now() - this.#firstMs < SEQUENCE_MS ? this.#first : undefined;
    this.#first = undefined;
    const row = (before && this.#find(`${before} ${key}`)) || this.#find(chord);
    if (row) {
      if (row.act(event) === false) return;
      event.preventDefault();
    } else if (key === "g") {
      this.#first = key;
      this.#firstMs = performance.now();
    }
  }

  #find(key) {
    for (const table of this.tables) for (const row of table) if (row.key === key && row.act) return row;
    return undefined;
  }
}

/** A place where letters are text. */
export function isTyping(target) {
  return target instanceof Element && Boolean(target.closest("textarea, select, [contenteditable], input:not([type=radio], [type=checkbox], [type=button])"));
}

/** A row: Escape leaves a field and keeps its text; the browser's own Escape empties a search. */
export const LEAVE = { key: "Escape", what: "Leave a field", act: () => (isTyping(document.activeElement) ? document.activeElement.blur() : false) };
