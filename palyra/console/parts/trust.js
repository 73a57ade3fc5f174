// The trust of a text in one word; hostile text is purple.

import { state } from "./icon.js";

const WORDS = { external_untrusted: ["drop", "untrusted", "taint"], mixed: ["drop", "mixed", "taint"], trusted_local: ["check", "trusted", ""], workspace: ["check", "workspace", ""] };

export function labelOfTrust(trust) {
  const [sign, word, look] = WORDS[trust] ?? ["queued", trust, ""];
  return state(sign, word, look);
}
