// The state of the page: one plain object; listeners are called at most once a frame.

export class Store {
  state = {};
  #listeners = new Set();
  #isDue = false;

  /** Change some of the state; listeners hear of it in the next frame (each second in a hidden tab). */
  set(patch) {
    Object.assign(this.state, patch);
    this.touch();
  }

  /** The state has changed in place, or time has gone by. */
  touch() {
    if (this.#isDue) return;
    this.#isDue = true;
    if (document.hidden) setTimeout(() => this.#run(), 1_000);
    else requestAnimationFrame(() => this.#run());
  }

  /** Call `listener(state)` after changes; returns a function that ends it. */
  subscribe(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #run() {
    this.#isDue = false;
    for (const listener of [...this.#listeners]) listener(this.state);
  }
}
