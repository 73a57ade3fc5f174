// <tape-list>: rows of any number, of which those in sight are in the document.
//
//     .rows        {length, at(index) -> key, find(key) -> index}
//     .template    (key, index) -> template; its root gets its place in the list from here
//     .version     anything: another one means that rows have changed
//     .selected    key of the selected row; .label names the list
//     .goal        {seq}: a new object brings that row into sight, {end: true} the end
//     .follow      stay at the end while the list grows
//     .tail        an element below the last row
//     .onSight(first, last) the keys in sight, and those to be read; .onSelect(key); .onLeave() the person scrolled away from the end
//
// A row is as high as the least row until it was seen; what is above the reader may turn out higher, and the
// row at the top stays where it is.

import { html, keyed, render } from "../view.js";

const MOST_ROWS = 76;
const AROUND = 8; // rows above and below those in sight
const END_PX = 60;

class TapeList extends HTMLElement {
  rows = { length: 0, at: () => undefined, find: () => -1 };
  #shown = { first: 0, count: 0 };
  #extra = new Map(); // index -> px above the least height
  #sums; // of them, in order
  #isDue = false;
  #goal;
  #lastTop = 0;
  #tail;
  #values = {};
  #parts;

  constructor() {
    super();
    for (const name of ["rows", "template", "version", "selected", "goal", "follow", "tail", "label"]) {
      this.#values[name] = this[name];
      Object.defineProperty(this, name, { get: () => this.#values[name], set: (value) => this.#set(name, value) });
    }
  }

  connectedCallback() {
    if (this.#parts) return;
    const make = (name) => Object.assign(document.createElement("div"), { className: name });
    const [list, above, body, below] = ["rows", "space", "body", "space"].map(make);
    list.setAttribute("role", "listbox");
    list.tabIndex = 0;
    list.append(above, body, below);
    this.append(list);
    this.#parts = { list, above, body, below };
    if (this.#tail) this.append(this.#tail);
    this.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.addEventListener("click", ({ target }) => {
      const key = target.closest("[data-key]")?.dataset.key;
      if (key !== undefined) this.onSelect?.(Number(key));
    });
    new ResizeObserver(() => {
      this.#forget();
      this.#due();
    }).observe(this);
  }

  /** The list itself, which has the focus. */
  focus(options) {
    this.#parts.list.focus({ preventScroll: true, ...options });
  }

  #set(name, value) {
    if (this.#values[name] === value) return;
    this.#values[name] = value;
    if (name === "rows") this.#forget();
    if (name === "goal") this.#goal = value;
    if (name === "tail") {
      this.#tail?.remove();
      this.#tail = value;
      if (this.#parts && value) this.append(value);
    }
    this.#due();
  }

  #forget() {
    this.#extra.clear();
    this.#sums = undefined;
  }

  #due() {
    if (this.#isDue) return;
    this.#isDue = true;
    requestAnimationFrame(() => {
      this.#isDue = false;
      if (this.isConnected) this.#draw();
    });
  }

  #scrolled() {
    const isAway = this.scrollHeight - this.clientHeight - this.scrollTop > END_PX;
    if (this.follow && isAway && this.scrollTop < this.#lastTop) this.onLeave?.();
    this.#lastTop = this.scrollTop;
    this.#due();
  }

  #draw() {
    const { list } = this.#parts;
    list.setAttribute("aria-label", this.label ?? "Events");
    const least = parseFloat(getComputedStyle(this).getPropertyValue("--row")) || 28;
    if (least !== this.#values.least) this.#forget();
    this.#values.least = least;
    let anchor = this.#aim(least);
    for (let round = 0; round < 3; round++) {
      this.#lay(least);
      if (!this.#measure(least)) break;
      this.#keep(anchor, least);
    }
    if (this.follow && !this.#goal) this.scrollTop = this.scrollHeight;
    this.#lastTop = this.scrollTop;
    this.#goal = undefined;
    this.#tellSight(least);
  }

  /** The row that stays where it is: the one that is asked for, or the one at the top. */
  #aim(least) {
    const goal = this.#goal;
    if (goal?.end) this.scrollTop = this.scrollHeight;
    if (goal?.seq === undefined) {
      const index = this.#indexAt(this.scrollTop, least);
      return { index, px: this.scrollTop - this.#offset(index, least) };
    }
    const index = Math.max(0, this.rows.find(goal.seq));
    const top = this.#offset(index, least);
    const isThere = top >= this.scrollTop + least && top + 3 * least < this.scrollTop + this.clientHeight;
    const px = isThere ? this.scrollTop - top : -Math.max(0, Math.floor(this.clientHeight / 3));
    this.#lay(least); // the list is as high as it has to be
    this.scrollTop = top + px;
    return { index, px };
  }

  #keep({ index, px }, least) {
    this.#lay(least);
    this.scrollTop = this.#offset(index, least) + px;
  }

  #lay(least) {
    const { list, above, body, below } = this.#parts;
    const { length } = this.rows;
    const from = this.#indexAt(this.scrollTop, least);
    const first = Math.max(0, from - AROUND);
    const inSight = Math.ceil(this.clientHeight / least) + 1;
    const count = Math.max(0, Math.min(length - first, from - first + inSight + AROUND, MOST_ROWS));
    this.#shown = { first, count };
    above.style.height = `${this.#offset(first, least)}px`;
    below.style.height = `${Math.max(0, this.#offset(length, least) - this.#offset(first + count, least))}px`;
    const keys = Array.from({ length: count }, (_, at) => this.rows.at(first + at));
    render(html`${keyed(keys, (key) => key, (key, at) => html`<div role="option" id="row-${key}" data-key=${key} aria-setsize=${length} aria-posinset=${first + at + 1}
      aria-selected=${key === this.selected ? "true" : "false"}>${this.template(key, first + at)}</div>`)}`, body);
    const active = keys.includes(this.selected) ? `row-${this.selected}` : "";
    if (active) list.setAttribute("aria-activedescendant", active);
    else list.removeAttribute("aria-activedescendant");
  }

  /** Note the heights of the rows that are shown; true if one was not known. */
  #measure(least) {
    let isNew = false;
    [...this.#parts.body.children].forEach((row, at) => {
      const index = this.#shown.first + at;
      const extra = Math.round(row.offsetHeight - least);
      if (extra === (this.#extra.get(index) ?? 0)) return;
      this.#extra.set(index, extra);
      isNew = true;
    });
    if (isNew) this.#sums = undefined;
    return isNew;
  }

  #offset(index, least) {
    this.#sums ??= this.#sumUp();
    const { at, sums } = this.#sums;
    let [low, high] = [0, at.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (at[middle] < index) low = middle + 1;
      else high = middle;
    }
    return index * least + (low ? sums[low - 1] : 0);
  }

  #sumUp() {
    const at = [...this.#extra.keys()].sort((left, right) => left - right);
    let sum = 0;
    return { at, sums: at.map((index) => (sum += this.#extra.get(index))) };
  }

  #indexAt(top, least) {
    let [low, high] = [0, Math.max(0, this.rows.length - 1)];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#offset(middle, least) <= top) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #tellSight(least) {
    const { length } = this.rows;
    if (!length) return;
    const [from, to] = [this.#indexAt(this.scrollTop, least), this.#indexAt(this.scrollTop + this.clientHeight - 1, least)];
    this.onSight?.(this.rows.at(from), this.rows.at(to));
  }
}

customElements.define("tape-list", TapeList);
