// Questions in lists.  Pure; an approval is shown by its preview alone.

import { oneLine } from "./text.js";

/** What a question is about, in a list: the argument that people know it by.  The card shows the object. */
export function objectOf({ tool, summary, arguments: given }) {
  const known = ["path", "command", "argv", "url", "question"].map((name) => given?.[name]).find((value) => value);
  if (known) return oneLine([known].flat().join(" "));
  const text = oneLine(summary);
  return text.startsWith(`${tool}(`) && text.endsWith(")") ? text.slice(tool.length + 1, -1) : text;
}

/** A wider answer is not offered because hostile text reached the run. */
export const isTainted = ({ once_because: because = "" }) => /taint/.test(because);

/** The words of a card by what is asked: a call, money beyond a budget, or something that the model wants to know. */
const CALL = { allow: "Allow once", deny: "Deny", refuse: "Deny this call", allowed: "Allowed", denied: "Denied", once: "This very call and nothing after it; the next one like it asks again.", foot: "A deny holds for this very call to the end of the run; the call itself is not edited here." };
const ASKED = {
  budget: { allow: "Let this run go on", deny: "End the run", refuse: "End the run", allowed: "Lifted", denied: "Ended", says: "the run waits before its next call of the model", once: "This budget no longer holds for this run; for all others it does.", foot: "A higher limit for all is set with `palyra budget set`. Without an answer in time the run ends." },
  ask_user: { allow: "Answer", deny: "No answer", refuse: "Give no answer", allowed: "Answered", denied: "Not answered", says: "the model asks", foot: "The model gets these words and who gave them; without an answer it gets the reason." },
};
export const wordsOf = ({ tool }) => ({ ...CALL, ...ASKED[tool] });

/** The fields of a question's form: `{name, rule, isRequired}`. */
export const fieldsOf = ({ tool, arguments: given }) => (tool === "ask_user" && given?.form ? Object.entries(given.form.properties).map(([name, rule]) => ({ name, rule, isRequired: (given.form.required ?? []).includes(name) })) : []);

/** The answers that a question of the model offers: none if any text is one; null for other questions. */
export const choicesOf = ({ tool, arguments: given }) => (tool === "ask_user" ? (given?.choices ?? []) : null);
