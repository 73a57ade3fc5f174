// What screens with a list and an inspector share: readings, acts with their refusal, keys that walk rows.

import { skeleton, failure } from "./states.js";
import { html } from "../view.js";

const SOON_MS = 200;

let turns = 0;

/** Read into `place[name]`; the newest reading wins, and an old value stays until it is there. */
export async function read(context, place, name, answer) {
  const [turn, error] = [`${name}_turn`, `${name}_error`];
  const mine = (place[turn] = ++turns);
  try {
    const value = await answer;
    if (place[turn] === mine) Object.assign(place, { [name]: value, [error]: null });
  } catch (found) {
    if (place[turn] === mine) place[error] = found;
  }
  context.store.touch();
}

/** What was read, why not, or bars while it is read. */
export function shown(place, name, retry, content) {
  if (place[`${name}_error`]) return failure(place[`${name}_error`], retry);
  return place[name] === undefined ? skeleton() : content(place[name]);
}

/** Call a method that changes something; a refusal is in `place.says`. Returns the result, or undefined. */
export async function change(context, place, method, params, says) {
  place.says = null;
  try {
    const done = await context.ask(method, params);
    if (says) context.announce(says);
    return done;
  } catch (error) {
    place.says = `${error.code}: ${error.message}`;
    return undefined;
  } finally {
    context.store.touch();
  }
}

/** The last refusal, beside what was pressed. */
export const refusal = (place) => (place.says ? html`<p class="bad small after" role="alert">${place.says}</p>` : null);

/** Call `act` soon after notices of that kind, for as long as a screen is open; returns what ends it. */
export function listen({ wire }, kind, act) {
  const end = new AbortController();
  let timer;
  const hear = async () => {
    for await (const { method } of wire.notices({ signal: end.signal })) {
      if (!kind.test(method)) continue;
      clearTimeout(timer);
      timer = setTimeout(act, SOON_MS);
    }
  };
  hear().catch(() => {}); // the end of the connection: the lamp says it
  return () => (clearTimeout(timer), end.abort());
}

/** Focus what a press made, once it is drawn; the person pressed for it. */
export function focusSoon(selector, frames = 30) {
  requestAnimationFrame(() => {
    const found = document.querySelector(`.inspector ${selector}`);
    if (found) found.focus();
    else if (frames) focusSoon(selector, frames - 1);
  });
}

/** Keys of a list: rows are links with `data-row`; Escape leaves what is open for `home()`. */
export const rowKeys = (home) => [
  { key: "j", what: "Next row", act: () => step(1) },
  { key: "ArrowDown", what: "Next row", act: () => step(1) },
  { key: "k", what: "Row before", act: () => step(-1) },
  { key: "ArrowUp", what: "Row before", act: () => step(-1) },
  { key: "/", what: "Search here", act: () => document.querySelector(".main input[type=search]")?.focus() },
  { key: "Escape", what: "Close what is open, leave a field", act: () => home() },
];

function step(by) {
  const rows = [...document.querySelectorAll(".main [data-row]")];
  const at = rows.indexOf(document.activeElement);
  if (!rows.length) return false;
  rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + by))].focus();
}
