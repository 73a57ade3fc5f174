// What is said aloud: one polite and one urgent region, each message once.

const said = new Set();
const MOST = 500;

/** Say a text; with `once` only the first time that this key is given. */
export function announce(text, { once, isUrgent = false } = {}) {
  if (once !== undefined) {
    if (said.has(once)) return;
    said.add(once);
    if (said.size > MOST) said.delete(said.values().next().value);
  }
  const region = document.getElementById(isUrgent ? "say-now" : "say");
  const line = document.createElement("p");
  line.textContent = text;
  region.append(line);
  while (region.childElementCount > 3) region.firstChild.remove();
}
