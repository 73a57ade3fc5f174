// Questions in lists.  Pure; an approval is shown by its preview alone.

import { oneLine } from "./text.js";

/** What a question is about, in a list: the argument that people know it by.  The card shows the object. */
export function objectOf({ tool, summary, arguments: given }) {
  const known = ["path", "command", "argv", "url"].map((name) => given?.[name]).find((value) => value);
  if (known) return oneLine([known].flat().join(" "));
  const text = oneLine(summary);
  return text.startsWith(`${tool}(`) && text.endsWith(")") ? text.slice(tool.length + 1, -1) : text;
}

/** A wider answer is not offered because hostile text reached the run. */
export const isTainted = ({ once_because: because = "" }) => /taint/.test(because);
