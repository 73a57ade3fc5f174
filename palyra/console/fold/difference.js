// The words in which two lines differ.  Pure; for what has no spans from the daemon, which wins where it has.

const WORDS = /[\p{L}\p{N}_]+|\s+|[^\p{L}\p{N}_\s]/gu;
const MOST = 400; // words of a line: beyond, the whole line counts as changed

/** `[from, to)` of the changed characters of each side: `{before: [[4, 7]], after: [[4, 10]]}`. */
export function changedWords(before, after) {
  const [left, right] = [before.match(WORDS) ?? [], after.match(WORDS) ?? []];
  let head = 0;
  while (head < left.length && head < right.length && left[head] === right[head]) head++;
  let foot = 0;
  while (foot < Math.min(left.length, right.length) - head && left.at(-1 - foot) === right.at(-1 - foot)) foot++;
  const [middle, other] = [left.slice(head, left.length - foot), right.slice(head, right.length - foot)];
  const from = left.slice(0, head).join("").length;
  const isLong = middle.length > MOST || other.length > MOST;
  const kept = isLong ? [new Set(), new Set()] : common(middle, other);
  return { before: spans(middle, kept[0], from), after: spans(other, kept[1], from) };
}

/** The indices on both sides that the longest common subsequence keeps. */
function common(left, right) {
  const width = right.length + 1;
  const best = new Uint16Array((left.length + 1) * width);
  for (let i = left.length - 1; i >= 0; i--)
    for (let j = right.length - 1; j >= 0; j--)
      best[i * width + j] =
        left[i] === right[j]
          ? best[(i + 1) * width + j + 1] + 1
          : Math.max(best[(i + 1) * width + j], best[i * width + j + 1]);
  const kept = [new Set(), new Set()];
  for (let i = 0, j = 0; i < left.length && j < right.length; ) {
    if (left[i] === right[j]) {
      kept[0].add(i++);
      kept[1].add(j++);
    } else if (best[(i + 1) * width + j] >= best[i * width + j + 1]) i++;
    else j++;
  }
  return kept;
}

function spans(words, kept, from) {
  const found = [];
  let at = from;
  words.forEach((word, index) => {
    const last = found.at(-1);
    if (!kept.has(index)) last?.[1] === at ? (last[1] += word.length) : found.push([at, at + word.length]);
    at += word.length;
  });
  return found;
}

/** A text in pieces along spans: `[{text, isChanged}]`. */
export function along(text, marks = []) {
  const found = [];
  let at = 0;
  for (const [from, to] of marks) {
    if (from > at) found.push({ text: text.slice(at, from), isChanged: false });
    if (to > from) found.push({ text: text.slice(from, to), isChanged: true });
    at = Math.max(at, to);
  }
  if (at < text.length) found.push({ text: text.slice(at), isChanged: false });
  return found;
}
