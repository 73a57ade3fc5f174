// A button that asks once more: the first press arms it, the second does it, leaving it disarms.
//
// `own` is state of the screen in which `sure` holds the key of the armed one.

import { html } from "../view.js";

export function sure(context, own, { key, text, sure: again, label, look = "quiet", isOff = false }, act) {
  const isArmed = own.sure === key;
  const set = (value) => {
    own.sure = value;
    context.store.touch();
  };
  const press = (event) => {
    if (!event.isTrusted || !context.isLive()) return;
    if (!isArmed) return set(key);
    set(null);
    act();
  };
  return html`<button class="button ${isArmed ? "bad" : look}" type="button" ?disabled=${isOff || !context.isLive()} aria-label=${label ? `${isArmed ? again : text} ${label}` : null} @click=${press} @blur=${() => own.sure === key && set(null)}>${isArmed ? again : text}</button>`;
}
