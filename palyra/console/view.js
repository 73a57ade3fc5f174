// Templates: literal parts are markup, holes are text.  The one place that makes markup out of strings.
//
//     html`<p class=${name} ?hidden=${isOff} .value=${text} @click=${act}>${anything}</p>`
//     keyed(rows, (row) => row.id, (row) => html`<li>${row.name}</li>`)   // keeps nodes and focus
//     render(template, parent)                                          // updates in place
//
// A hole takes text, a number, a template, a list of those, a node, or nothing (null, undefined, false).
// A property is set whenever the element's own differs: without an `@input` the next drawing takes back what is typed.
// Text with invisible or direction-turning characters comes out with these spelled out, in every hole.
// An attribute with null, undefined or false is absent.  `svg` is `html` for what is inside of an <svg>.

import { pieces, visible } from "./fold/text.js";

const policy = globalThis.trustedTypes?.createPolicy("palyra-view", { createHTML: (text) => text, createScriptURL: (url) => url });
const MARK = /⟨(\d+)⟩/g;
const HOLE = "⟨";
const NAME = /([@.?]?[\w:-]+)\s*=\s*(?:"[^"]*|'[^']*)?$/; // of the attribute that the hole is in
const REFUSED = /^(on.*|style|srcdoc)$/i; // handlers are `@event`, looks are classes
const ADDRESSES = new Set(["href", "src", "action", "formaction", "xlink:href"]);
const FAITHFUL = /^(?!javascript:|data:|vbscript:)/i;

const compiled = new WeakMap(); // by the literal parts, which are one object for each place in the code
const roots = new WeakMap();

/** A template with the values of its holes. */
class Template {
  constructor(strings, values, isSvg) {
    if (!Array.isArray(strings.raw)) throw new TypeError("html is called as a tag only: its literal parts are code");
    this.strings = strings;
    this.values = values;
    this.isSvg = isSvg;
  }
}

/** A list whose nodes follow their keys. */
class Keyed {
  constructor(items, key, template) {
    this.entries = new Map(items.map((item, at) => [key(item, at), template(item, at)]));
  }
}

export const html = (strings, ...values) => new Template(strings, values, false);
export const svg = (strings, ...values) => new Template(strings, values, true);
export const keyed = (items, key, template) => new Keyed(items, key, template);

/** Show a template in an element; a second call updates what the first one made. */
export function render(template, parent) {
  let slot = roots.get(parent);
  if (!slot) {
    parent.replaceChildren();
    roots.set(parent, (slot = Slot.at(parent, null)));
  }
  slot.set(template);
}

/** Text as nodes, hostile characters spelled out; for elements that own their DOM. */
export function textNodes(text) {
  const fragment = document.createDocumentFragment();
  for (const { text: piece, name } of pieces(text)) {
    if (!name) fragment.append(piece);
    else {
      const chip = document.createElement("span");
      chip.className = "hostile";
      chip.title = name;
      chip.textContent = piece;
      fragment.append(chip);
    }
  }
  return fragment;
}

// --- Compiling: once for each place in the code -------------------------------------------------

function compile({ strings, isSvg }) {
  const names = [];
  let text = "";
  strings.forEach((part, at) => {
    text += part;
    if (at === strings.length - 1) return;
    const isInTag = text.lastIndexOf("<") > text.lastIndexOf(">");
    const name = isInTag ? NAME.exec(text)?.[1] : undefined;
    if (isInTag && !name) throw new SyntaxError(`a hole is neither text nor an attribute: ${part.slice(-60)}`);
    names.push(name ?? names.at(-1));
    text += isInTag ? `⟨${at}⟩` : `<!--⟨${at}⟩-->`;
  });
  const element = document.createElement("template");
  const markup = isSvg ? `<svg>${text}</svg>` : text;
  element.innerHTML = policy ? policy.createHTML(markup) : markup;
  if (isSvg) element.content.replaceChildren(...element.content.firstChild.childNodes);
  const holes = [];
  collect(element.content, [], names, holes);
  return { element, holes };
}

function collect(node, path, names, holes) {
  if (node.nodeType === Node.COMMENT_NODE && node.data.startsWith(HOLE)) {
    holes.push({ path, at: Number(node.data.slice(1, -1)) });
    return;
  }
  for (const { name, value } of [...(node.attributes ?? [])]) {
    if (!value.includes(HOLE)) continue;
    const parts = value.split(MARK); // text, index, text, index, text
    const at = Number(parts[1]);
    node.removeAttribute(name);
    if (REFUSED.test(names[at])) throw new SyntaxError(`the attribute ${names[at]} takes no hole`);
    holes.push({ path, at, name: names[at], parts });
  }
  node.childNodes.forEach((child, index) => collect(child, [...path, index], names, holes));
}

// --- Instances ----------------------------------------------------------------------------------

class Instance {
  constructor(template) {
    if (!compiled.has(template.strings)) compiled.set(template.strings, compile(template));
    const { element, holes } = compiled.get(template.strings);
    this.strings = template.strings;
    this.content = document.importNode(element.content, true);
    const found = holes.map(({ path }) => path.reduce((node, index) => node.childNodes[index], this.content));
    this.holes = holes.map((hole, index) => makeHole(hole, found[index]));
  }

  update(values) {
    for (const { at, parts, target } of this.holes)
      target.set(!parts || (!parts[0] && parts.length === 3 && !parts[2]) ? values[at] : joined(parts, values));
  }
}

function joined(parts, values) {
  return parts.map((part, index) => (index % 2 ? (values[part] ?? "") : part)).join("");
}

function makeHole({ at, name, parts }, node) {
  if (!name) return { at, target: Slot.around(node) };
  const target =
    name[0] === "@"
      ? new Listener(node, name.slice(1))
      : name[0] === "."
        ? new Property(node, name.slice(1))
        : name[0] === "?"
          ? new Flag(node, name.slice(1))
          : new Attribute(node, name);
  return { at, parts, target };
}

class Attribute {
  constructor(node, name) {
    Object.assign(this, { node, name, value: undefined });
  }

  set(value) {
    if (value === this.value) return;
    this.value = value;
    if (value == null || value === false) this.node.removeAttribute(this.name);
    else this.node.setAttribute(this.name, this.#safe(value === true ? "" : visible(String(value))));
  }

  #safe(text) {
    const isFaithful = !ADDRESSES.has(this.name) || FAITHFUL.test(text.replace(/[\s\x00-\x20]/g, ""));
    return isFaithful ? text : "#";
  }
}

class Flag {
  constructor(node, name) {
    Object.assign(this, { node, name });
  }

  set(value) {
    this.node.toggleAttribute(this.name, Boolean(value));
  }
}

class Property {
  constructor(node, name) {
    if (/html$/i.test(name)) throw new SyntaxError(`the property ${name} takes no hole`);
    Object.assign(this, { node, name });
  }

  set(value) {
    if (this.node[this.name] !== value) this.node[this.name] = value;
  }
}

class Listener {
  constructor(node, name) {
    node.addEventListener(name, this);
  }

  set(act) {
    this.act = act;
  }

  handleEvent(event) {
    this.act?.(event);
  }
}

/** A place between two comments. */
class Slot {
  static at(parent, before) {
    const start = parent.insertBefore(document.createComment(""), before);
    return new Slot(start, parent.insertBefore(document.createComment(""), before));
  }

  static around(comment) {
    return new Slot(comment.parentNode.insertBefore(document.createComment(""), comment), comment);
  }

  constructor(start, end) {
    Object.assign(this, { start, end, kind: "empty", held: undefined });
    end.data = "";
  }

  set(value) {
    if (value == null || value === false || value === true) this.#become("empty");
    else if (value instanceof Template) this.#setTemplate(value);
    else if (value instanceof Keyed) this.#setEntries(value.entries);
    else if (Array.isArray(value)) this.#setEntries(new Map(value.entries()));
    else if (value instanceof Node) this.#setNode(value);
    else this.#setText(String(value));
  }

  clear() {
    while (this.start.nextSibling !== this.end) this.start.nextSibling.remove();
  }

  remove() {
    this.clear();
    this.start.remove();
    this.end.remove();
  }

  moveBefore(node) {
    const range = document.createRange();
    range.setStartBefore(this.start);
    range.setEndAfter(this.end);
    node.parentNode.insertBefore(range.extractContents(), node);
  }

  #become(kind) {
    if (this.kind === kind) return false;
    this.clear();
    this.kind = kind;
    this.held = undefined;
    return true;
  }

  #setText(text) {
    if (!this.#become("text") && this.held === text) return;
    this.held = text;
    const only = this.start.nextSibling;
    const isPlain = visible(text) === text;
    if (isPlain && only !== this.end && only.nextSibling === this.end && only.nodeType === Node.TEXT_NODE) only.data = text;
    else {
      this.clear();
      this.end.parentNode.insertBefore(textNodes(text), this.end);
    }
  }

  #setNode(node) {
    if (!this.#become("node") && this.held === node) return;
    this.clear();
    this.held = node;
    this.end.parentNode.insertBefore(node, this.end);
  }

  #setTemplate(template) {
    if (this.kind === "template" && this.shown === template) return; // the very same one: nothing in it has changed
    this.shown = template;
    const isNew = this.#become("template");
    if (isNew || this.held.strings !== template.strings) {
      this.clear();
      this.held = new Instance(template);
      this.held.update(template.values);
      this.end.parentNode.insertBefore(this.held.content, this.end);
    } else this.held.update(template.values);
  }

  #setEntries(entries) {
    if (this.#become("entries")) this.held = new Map();
    for (const [key, slot] of this.held) {
      if (entries.has(key)) continue;
      slot.remove();
      this.held.delete(key);
    }
    let next = this.start.nextSibling;
    for (const [key, value] of entries) {
      let slot = this.held.get(key);
      if (!slot) this.held.set(key, (slot = Slot.at(this.end.parentNode, next)));
      else if (slot.start === next) next = slot.end.nextSibling;
      else slot.moveBefore(next);
      slot.set(value);
      next = slot.end.nextSibling;
    }
  }
}

/** The address of the page's service worker, the one program that a page may name. */
export const workerAddress = () => ((url) => policy?.createScriptURL(url) ?? url)(new URL("console-worker.js", document.baseURI).href);
