// <json-value>: a JSON value as a tree that opens level by level; a long text shows its beginning and its size.
//
//     .value       anything; .depth how many levels are open at first (1)

import { grouped, size } from "../fold/text.js";
import { textNodes } from "../view.js";

const SHOWN_CHARS = 4_096;
const SHOWN_ITEMS = 100;

class JsonValue extends HTMLElement {
  depth = 1;
  #value;

  get value() {
    return this.#value;
  }

  set value(value) {
    if (value === this.#value) return;
    this.#value = value;
    this.replaceChildren(tree(value, this.depth));
  }
}

function tree(value, depth) {
  if (typeof value === "string") return text(value);
  if (value === null || typeof value !== "object") return made("span", "atom", String(value));
  const entries = Object.entries(value);
  if (!entries.length) return made("span", "muted", Array.isArray(value) ? "[]" : "{}");
  const list = made("dl", "tree-value");
  for (const [name, each] of entries.slice(0, SHOWN_ITEMS)) {
    const isBranch = each !== null && typeof each === "object" && Object.keys(each).length > 0;
    list.append(made("dt", "", name), wrapped("dd", isBranch ? branch(each, depth - 1) : tree(each, depth)));
  }
  if (entries.length > SHOWN_ITEMS) list.append(made("dt", "", "…"), made("dd", "muted", `${grouped(entries.length - SHOWN_ITEMS)} more`));
  return list;
}

function branch(value, depth) {
  const details = document.createElement("details");
  details.append(made("summary", "muted", Array.isArray(value) ? `${value.length} items` : Object.keys(value).slice(0, 4).join(", ")));
  details.addEventListener("toggle", () => details.open && details.childElementCount === 1 && details.append(tree(value, depth)));
  details.open = depth > 0;
  return details;
}

/** A text; of a long one the beginning, and a button for the rest. */
export function text(value, shown = SHOWN_CHARS) {
  const node = document.createElement("span");
  node.className = "text-value";
  node.append(textNodes(value.slice(0, shown)));
  if (value.length <= shown) return node;
  const button = made("button", "link", `… ${size(value.length)} in all, show more`);
  button.addEventListener("click", () => node.replaceWith(text(value, shown * 16)));
  node.append(button);
  return node;
}

function made(tag, look, content = "") {
  const node = document.createElement(tag);
  if (look) node.className = look;
  node.append(textNodes(content));
  return node;
}

function wrapped(tag, child) {
  const node = document.createElement(tag);
  node.append(child);
  return node;
}

customElements.define("json-value", JsonValue);
