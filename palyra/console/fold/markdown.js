// A safe subset of Markdown as a tree: paragraphs, headings, lists, code, tables, quotes, emphasis, links.  Pure.
//
// Blocks: {type: "paragraph" | "heading" | "quote", spans}, {type: "list", isOrdered, items: [spans]},
// {type: "code", text, language}, {type: "table", head: [spans], rows: [[spans]]}, {type: "rule"}.
// Spans: {type: "text" | "code" | "strong" | "emphasis", text}, {type: "link", text, address}.  Raw HTML is text.
// A picture is a link; only http and https addresses are links; `parts/markdown.js` shows the tree.

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+-]*)/;
const ITEM = /^\s*(?:[-*+]|(\d{1,9})[.)])\s+(.*)$/;
const SPAN = /(`+)([^`]|[^`].*?[^`])\1(?!`)|\*\*(?=\S)(.+?)\*\*|(?<![\w*])[*_](?=\S)([^*_]+?)[*_](?![\w*])|!?\[([^\]]*)\]\(\s*<?([^\s)>]+)>?[^)]*\)|(https?:\/\/[^\s<>")\]]+)/g;

/** The blocks of a text. */
export function parse(text) {
  const lines = text.replace(/\r\n?/g, "\n").split("\n");
  const blocks = [];
  let at = 0;
  while (at < lines.length) [at] = block(lines, at, blocks);
  return blocks;
}

function block(lines, at, blocks) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return code(lines, at, fence, blocks);
  if (!line.trim()) return [at + 1];
  const heading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/.exec(line);
  if (heading) return [at + 1, blocks.push({ type: "heading", level: heading[1].length, spans: inline(heading[2]) })];
  if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line)) return [at + 1, blocks.push({ type: "rule" })];
  if (ITEM.test(line)) return list(lines, at, blocks);
  if (/\|/.test(line) && /^\s*\|?\s*:?-+:?\s*(\|\s*:?-+:?\s*)*\|?\s*$/.test(lines[at + 1] ?? "")) return table(lines, at, blocks);
  const isQuote = /^\s*>/.test(line);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !starts(lines[end]) && /^\s*>/.test(lines[end]) === isQuote) end++;
  const text = lines.slice(at, end).map((each) => (isQuote ? each.replace(/^\s*>\s?/, "") : each)).join("\n");
  return [end, blocks.push({ type: isQuote ? "quote" : "paragraph", spans: inline(text) })];
}

const starts = (line) => FENCE.test(line) || ITEM.test(line) || /^ {0,3}#{1,6}\s/.test(line);

function code(lines, at, fence, blocks) {
  let end = at + 1;
  while (end < lines.length && !lines[end].trim().startsWith(fence[1])) end++;
  return [end + 1, blocks.push({ type: "code", language: fence[2], text: lines.slice(at + 1, end).join("\n") })];
}

function list(lines, at, blocks) {
  const items = [];
  const isOrdered = ITEM.exec(lines[at])[1] !== undefined;
  let end = at;
  for (; end < lines.length && lines[end].trim(); end++) {
    const item = ITEM.exec(lines[end]);
    if (item) items.push(item[2]);
    else if (starts(lines[end])) break;
    else items[items.length - 1] += `\n${lines[end].trim()}`;
  }
  return [end, blocks.push({ type: "list", isOrdered, items: items.map(inline) })];
}

function table(lines, at, blocks) {
  const cells = (line) => line.trim().replace(/^\||\|$/g, "").split("|").map((cell) => inline(cell.trim()));
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) end++;
  return [end, blocks.push({ type: "table", head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells) })];
}

/** The spans of a text; what no rule takes is text. */
export function inline(text) {
  const spans = [];
  let from = 0;
  for (const found of text.matchAll(SPAN)) {
    if (found.index > from) spans.push({ type: "text", text: text.slice(from, found.index) });
    spans.push(toSpan(found));
    from = found.index + found[0].length;
  }
  if (from < text.length) spans.push({ type: "text", text: text.slice(from) });
  return spans;
}

function toSpan([whole, , code, strong, emphasis, label, target, bare]) {
  if (code !== undefined) return { type: "code", text: code };
  if (strong !== undefined) return { type: "strong", text: strong };
  if (emphasis !== undefined) return { type: "emphasis", text: emphasis };
  const address = bare ?? target;
  return /^https?:\/\//i.test(address) ? { type: "link", text: label ?? address, address } : { type: "text", text: whole };
}
