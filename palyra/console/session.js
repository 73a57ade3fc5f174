// The login of this page: where it is kept, and the address of the daemon it belongs to.
//
// A login has two halves.  The first is a cookie that scripts cannot read and the browser sends by
// itself; the second is kept here and sent in `connect`.  Neither is worth anything alone.  The
// address is always the page's own, below whatever path a proxy has put it.

const BASE = new URL(".", globalThis.location.href);
const KEY = `palyra ${BASE.pathname}`; // several daemons may share an origin, each below a path
const CODE = /#login=([A-Za-z0-9_-]+)$/;
const RETURN = `${KEY} return`; // the address of an open page into which a link was pasted

/** The endpoint for `connect` of client.js; the token is read anew for each connection. */
export function endpoint() {
  return { url: new URL("v1/ws", BASE).href, token: localStorage.getItem(KEY) ?? undefined };
}

/** True if this browser holds the second half of a login, which may have ended by now. */
export function hasLogin() {
  return localStorage.getItem(KEY) !== null;
}

/** Forget the second half; the daemon ends the login itself by `console.logout`. */
export function forgetLogin() {
  localStorage.removeItem(KEY);
}

// A link that is pasted into an open page changes the fragment alone.
globalThis.addEventListener("hashchange", ({ oldURL }) => {
  if (!findCode(globalThis.location.hash)) return;
  sessionStorage.setItem(RETURN, new URL(oldURL).hash);
  globalThis.location.reload();
});

/** The code in a link, if it is one to a console. */
export function findCode(link) {
  return CODE.exec(link.trim())?.[1];
}

/** Return the code in the address, and remove it from there and from the history. */
export function takeCode() {
  const code = findCode(globalThis.location.hash);
  if (code) history.replaceState(null, "", sessionStorage.getItem(RETURN) || "#/now");
  sessionStorage.removeItem(RETURN);
  return code;
}

/** Trade a code for a login.  Rejects with the daemon's reason, as a text for a person. */
export async function logIn(code) {
  const answer = await fetch(new URL("v1/console/login", BASE), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ code }),
    credentials: "same-origin",
    cache: "no-store",
  });
  if (!answer.ok) throw new Error((await answer.text()).trim() || `the daemon answered ${answer.status}`);
  const { token } = await answer.json();
  localStorage.setItem(KEY, token);
}
