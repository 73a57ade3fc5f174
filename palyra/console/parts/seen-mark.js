// An element at the end of something that has to be read: says `seen` once it was on the screen.

class SeenMark extends HTMLElement {
  #observer;

  connectedCallback() {
    this.#observer = new IntersectionObserver((entries) => {
      if (!entries.some((entry) => entry.isIntersecting)) return;
      this.#observer.disconnect();
      this.dispatchEvent(new Event("seen"));
    });
    this.#observer.observe(this);
  }

  disconnectedCallback() {
    this.#observer.disconnect();
  }
}

customElements.define("seen-mark", SeenMark);
