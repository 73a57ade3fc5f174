// The address is the state: `#/run/run_…/seq/412?view=raw`.

/** `{screen, parts, query}` of the part of an address after `#`. */
export function parse(hash) {
  const [path, search = ""] = hash.replace(/^#\/?/, "").split("?", 2);
  const [screen, ...parts] = path.split("/").filter(Boolean).map(decode);
  return { screen: screen || "now", parts, query: Object.fromEntries(new URLSearchParams(search)) };
}

/** The address of a screen; parts and values may be any text, absent values are left out. */
export function href(screen, parts = [], query = {}) {
  const given = Object.entries(query).filter(([, value]) => value != null && value !== "" && value !== false);
  const search = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
  return `#/${[screen, ...parts].map(encodeURIComponent).join("/")}${search && `?${search}`}`;
}

function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // a lone % is itself
  }
}
