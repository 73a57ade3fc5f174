// Arm, then confirm: the answer to a question is two acts of a person.  Pure.
//
//     idle --a / tap--> armed allow --Enter / tap on the confirmation--> answer
//     idle --d / tap--> armed deny  --Enter / tap on the confirmation--> answer
//     armed --any other key, Back, the card changed, the socket lost--> idle
//
// Nothing is accepted before the card has stood still for GUARD_MS, on key repeat, from a text field, from
// an event that no person made, or while nothing may be answered.  A scope wider than once needs the
// confirmation itself to have the focus: the first Enter moves it there.

export const GUARD_MS = 500;
const DOUBLE_TAP_MS = 300; // the second tap of a double tap is no confirmation

/** The state of a card that was shown, or changed, at `now_ms`. */
export function shown(now_ms) {
  return { armed: null, shown_ms: now_ms, armed_ms: 0 };
}

/**
 * Take one act: {kind: "allow" | "deny" | "enter" | "confirm" | "other", isTrusted, isRepeat, isTyping, isOnConfirm}.
 *
 * `card` says {isOpen, mayAllow, isWide} of the card.  Returns {state, answer?, wants?}: `answer` is allow or
 * deny, `wants` "confirm" when the focus has to move to the confirmation, or the reason of a refusal.
 */
export function take(state, act, card, now_ms) {
  const idle = { ...state, armed: null };
  if (!act.isTrusted || act.isRepeat || act.isTyping) return { state };
  if (!card.isOpen) return { state: idle };
  if (now_ms - state.shown_ms < GUARD_MS) return { state: idle, wants: "moment" };
  if (act.kind === "allow" || act.kind === "deny") {
    if (act.kind === "allow" && !card.mayAllow) return { state: idle, wants: "seen" };
    return { state: { ...state, armed: act.kind, armed_ms: now_ms } };
  }
  if (!state.armed) return { state };
  if (state.armed === "allow" && !card.mayAllow) return { state: idle };
  if (act.kind === "confirm") return now_ms - state.armed_ms < DOUBLE_TAP_MS ? { state } : { state: idle, answer: state.armed };
  if (act.kind === "enter") {
    if (state.armed === "allow" && card.isWide && !act.isOnConfirm) return { state, wants: "confirm" };
    return { state: idle, answer: state.armed };
  }
  return { state: idle };
}

/** What of a key press is meant: the kind of an act. */
export function kindOf(key) {
  return { a: "allow", d: "deny", Enter: "enter" }[key] ?? "other";
}

/** Keys that neither arm nor disarm: alone they are no answer, and Tab and scrolling belong to reading. */
export function isNeutral(key) {
  return /^(Shift|Control|Alt|Meta|CapsLock|Tab|PageUp|PageDown|ArrowUp|ArrowDown|Home|End)$/.test(key);
}
