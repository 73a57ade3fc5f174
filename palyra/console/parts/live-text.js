// <live-text>: a text as it arrives; one text node, one paint a frame, and of a long one its tail.

import { visible } from "../fold/text.js";

const KEPT_CHARS = 262_144;

class LiveText extends HTMLElement {
  #node = document.createTextNode("");
  #new = "";
  #isDue = false;

  connectedCallback() {
    if (!this.#node.isConnected) this.replaceChildren(this.#node);
  }

  /** Add a piece behind what is there. */
  add(text) {
    this.#new += text;
    this.#due();
  }

  /** Begin anew; a durable event has taken the place of this text. */
  clear() {
    this.#new = "";
    this.#node.data = "";
  }

  get length() {
    return this.#node.length + this.#new.length;
  }

  #due() {
    if (this.#isDue) return;
    this.#isDue = true;
    const paint = () => {
      this.#isDue = false;
      if (this.#new) this.#node.appendData(visible(this.#new));
      this.#new = "";
      if (this.#node.length > KEPT_CHARS) this.#node.data = `… ${this.#node.data.slice(-KEPT_CHARS / 2)}`;
      this.onPaint?.();
    };
    if (document.hidden) setTimeout(paint, 1_000);
    else requestAnimationFrame(paint);
  }
}

customElements.define("live-text", LiveText);
