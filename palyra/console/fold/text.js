// Text for eyes: hostile characters spelled out, ids shortened, long values cut with a word about it.  Pure.

const NAMES = {
  0x00: "NULL", 0x07: "BELL", 0x08: "BACKSPACE", 0x0d: "CARRIAGE RETURN", 0x1b: "ESCAPE", 0x7f: "DELETE",
  0xad: "SOFT HYPHEN", 0x61c: "ARABIC LETTER MARK", 0x115f: "HANGUL CHOSEONG FILLER", 0x2800: "BRAILLE BLANK",
  0x180e: "MONGOLIAN VOWEL SEPARATOR", 0x200b: "ZERO WIDTH SPACE", 0x200c: "ZERO WIDTH NON-JOINER",
  0x200d: "ZERO WIDTH JOINER", 0x200e: "LEFT-TO-RIGHT MARK", 0x200f: "RIGHT-TO-LEFT MARK", 0x2028: "LINE SEPARATOR",
  0x2029: "PARAGRAPH SEPARATOR", 0x202a: "LEFT-TO-RIGHT EMBEDDING", 0x202b: "RIGHT-TO-LEFT EMBEDDING",
  0x202c: "POP DIRECTIONAL FORMATTING", 0x202d: "LEFT-TO-RIGHT OVERRIDE", 0x202e: "RIGHT-TO-LEFT OVERRIDE",
  0x2060: "WORD JOINER", 0x2066: "LEFT-TO-RIGHT ISOLATE", 0x2067: "RIGHT-TO-LEFT ISOLATE",
  0x2068: "FIRST STRONG ISOLATE", 0x2069: "POP DIRECTIONAL ISOLATE", 0x3164: "HANGUL FILLER",
  0xfeff: "ZERO WIDTH NO-BREAK SPACE",
};

const PLAIN = /^[\n\t\x20-\x7e]*$/;
// Controls, formats, private, separators, what Unicode ignores by default, blank glyphs; line feed and tab stay.
const HOSTILE =
  /(?![\n\t])[\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164\uffa0\ufe00-\ufe0f\u{e0000}-\u{e0fff}]/gu;
const PICTURE = /[\p{Extended_Pictographic}\p{Emoji_Modifier}\ufe0f]$/u;
const JOINING = /[\p{Script=Arabic}\p{Script=Devanagari}\p{Script=Bengali}\p{Script=Tamil}\p{Script=Malayalam}\p{Script=Sinhala}\p{M}]$/u;

/** The pieces of a text: `{text}` as it is, `{text, name}` one hostile character spelled out. */
export function pieces(text) {
  if (PLAIN.test(text)) return text ? [{ text }] : [];
  const found = [];
  let from = 0;
  for (const { 0: character, index } of text.matchAll(HOSTILE)) {
    if (isAtHome(text, character, index)) continue;
    if (index > from) found.push({ text: text.slice(from, index) });
    found.push({ text: spell(character), name: nameOf(character) });
    from = index + character.length;
  }
  if (from < text.length) found.push({ text: text.slice(from) });
  return found;
}

/** The text with hostile characters as `\u202e`. */
export function visible(text) {
  return PLAIN.test(text) ? text : pieces(text).map((piece) => piece.text).join("");
}

/** The joiner and the selector of an emoji, and the joiners of scripts that need them. */
function isAtHome(text, character, index) {
  const before = text.slice(Math.max(0, index - 2), index);
  if (character === "\ufe0f") return /[\p{Emoji}]$/u.test(before);
  if (character === "\u200d" && PICTURE.test(before)) return /^\p{Extended_Pictographic}/u.test(text.slice(index + 1));
  return (character === "\u200d" || character === "\u200c") && JOINING.test(before);
}

function spell(character) {
  const code = character.codePointAt(0);
  return code > 0xffff ? `\\u{${code.toString(16)}}` : `\\u${code.toString(16).padStart(4, "0")}`;
}

function nameOf(character) {
  const code = character.codePointAt(0);
  return NAMES[code] ?? `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The tail of an id, which commands accept in its place: `run …f91db09d`. */
export function tail(id, chars = 8) {
  const bare = String(id ?? "").replace(/^[a-z]+_/, "");
  return bare.length > chars ? `…${bare.slice(-chars)}` : bare;
}

/** One line of at most `chars` characters; what was left out is an ellipsis. */
export function oneLine(text, chars = 200) {
  const line = String(text ?? "").replace(/\s+/g, " ").trim();
  return line.length > chars ? `${line.slice(0, chars - 1)}…` : line;
}

const SMALL = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"];

/** A count in words up to twelve, with its noun: `two questions`. */
export function many(count, noun, plural = `${noun}s`) {
  return `${SMALL[count] ?? grouped(count)} ${count === 1 ? noun : plural}`;
}

/** A sentence begins with a capital. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** Thousands apart by a thin space. */
export function grouped(number) {
  return String(Math.round(number)).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

/** Bytes as a person says them. */
export function size(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  const step = bytes < 1_048_576 ? [1024, "KiB"] : [1_048_576, "MiB"];
  return `${(bytes / step[0]).toFixed(1)} ${step[1]}`;
}
