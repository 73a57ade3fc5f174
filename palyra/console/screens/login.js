// The screen of a page without a login: where a link comes from, and a field for one.
//
// A link that is opened in this browser logs in by itself; the field is for one that was printed elsewhere.
// What is typed there goes into no address, no history and no list of the browser.

import { html } from "../view.js";
import { findCode, logIn } from "../session.js";

/** The screen; `says` is why the page needs a login, true at its first visit. */
export function login(says, store) {
  return html`<main class="pad login"><h1>This page needs a login link</h1>
    <p class="soft">It is printed in a terminal of the daemon's machine, works once and for 120 s.</p>
    <code class="cmd">palyra console --role operator</code>
    <form @submit=${(event) => void submit(event, store)}>
      <label>Open it in this browser, or paste it here:
        <input class="field" name="link" type="password" autocomplete="off" autocapitalize="off" spellcheck="false" required></label>
      <button class="button go">Log in</button>
    </form>
    ${typeof says === "string" ? html`<p class="bad" role="alert">${says}</p>` : null}</main>`;
}

async function submit(event, store) {
  event.preventDefault();
  const { link } = event.target.elements;
  const code = findCode(link.value);
  link.value = "";
  try {
    if (!code) throw new Error("this is no link to a console: it ends with #login= and a code");
    await logIn(code);
    globalThis.location.reload();
  } catch (error) {
    store.set({ needs_login: error.message });
  }
}
