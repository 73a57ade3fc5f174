// Who may connect: tokens and logins of the console, made and revoked.
//
// `rules.made` is what was made last: its secret is shown once, and forgotten when the tab is left.

import { many, sentence } from "../fold/text.js";
import { moment } from "../fold/time.js";
import { href } from "../route.js";
import { html, keyed } from "../view.js";
import { section } from "./section.js";

const ROLES = ["observer", "approver", "person", "client", "operator"];
const HOUR_MS = 3_600_000;

export function tokensView(context, { tokens, made, own }, { query }, acts, sure) {
  const now = context.now();
  const isOver = (each) => Boolean(each.revoked_ms || (each.expires_ms && each.expires_ms <= now));
  const shown = tokens.filter((each) => query.all || !isOver(each)).sort((left, right) => right.created_ms - left.created_ms);
  const live = tokens.filter((each) => !isOver(each));
  const logins = live.filter((each) => each.slide_ms).length;
  const may = context.may("tokens:write");
  return html`<h1>${sentence(many(live.length, "token"))} ${live.length === 1 ? "is" : "are"} valid, ${logins ? `${many(logins, "login")} of the console among them` : "no login of the console"}.</h1>
    <p class="soft">Revoking closes the connections of a token at once.</p>
    ${made ? html`<div class="made" role="status"><p><b>${made.says}</b> It is shown once; who has it may connect.</p><p class="cmd" id="made">${made.secret}</p>
      <p class="after"><button class="button" @click=${() => navigator.clipboard?.writeText(made.secret)}>Copy</button> <button class="button quiet" @click=${acts.forget}>Hide</button></p></div>` : null}
    ${section("Valid", shown.length, html`<a class="act" href=${href("rules", ["tokens"], { all: query.all ? null : "1" })}>${query.all ? "only valid ones" : "also ended ones"}</a>`, html`<div class="scrolls"><table class="grid-table tokens"><thead><tr><th>Name</th><th>Principal</th><th>Role</th><th>Kind</th><th>Made</th><th class="num">Ends</th><th><span class="aloud">Revoke</span></th></tr></thead><tbody>
      ${keyed(shown.slice(0, 200), (each) => each.token_id, (each) => html`<tr><td><b>${each.name}</b></td><td>${each.principal}</td><td>${each.role}</td><td>${each.slide_ms ? "login of the console" : "token"}</td><td title=${moment(each.created_ms)}>${acts.ago(each.created_ms)} ago</td>
        <td class="num">${each.revoked_ms ? html`<span class="bad">revoked</span>` : isOver(each) ? "expired" : each.expires_ms ? acts.left(each.expires_ms) : "never"}</td>
        <td class="num">${isOver(each) ? null : sure({ key: each.token_id, text: "Revoke", sure: "Revoke it: press again", label: `${each.name} of ${each.principal}`, isOff: !may }, () => acts.tell("token.revoke", { token_id: each.token_id }, `Revoked: ${each.name}`))}</td></tr>`)}</tbody></table></div>`)}
    ${section("Make a token", "", "for a program", form(context, own, "token", may, acts))}
    ${section("Let a browser log in", "", "by a link, once, within two minutes", form(context, own, "link", may, acts))}`;
}

function form(context, own, kind, may, acts) {
  const off = !may || !context.isLive() || own.isBusy;
  const isLink = kind === "link";
  const submit = (event) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.target));
    const hours = Number(given.hours);
    const ttl = hours > 0 ? { ttl_ms: Math.round(hours * HOUR_MS) } : {};
    if (isLink) void acts.make("console.link", { role: given.role, principal: given.principal || null, ...ttl }, (made) => ({ secret: made.url, says: `A link for ${made.principal} as ${made.role}.` }));
    else void acts.make("token.create", { name: given.name, principal: given.principal, role: given.role, ...ttl }, (made) => ({ secret: made.token, says: `The token ${made.name} of ${made.principal}.` }));
    event.target.reset();
  };
  const field = (name, text, rest, isNeeded) => html`<label>${text}<input class="field" name=${name} placeholder=${rest} ?required=${isNeeded} ?disabled=${off} autocomplete="off"></label>`;
  return html`<form @submit=${submit} aria-label=${isLink ? "Let a browser log in" : "Make a token"}><div class="fields-row">${isLink ? null : field("name", "Name", "laptop", true)}${field("principal", "Principal", isLink ? "your own" : "ann", !isLink)}
    <label>Role<select class="field" name="role" ?disabled=${off}>${ROLES.filter((each) => !isLink || each !== "client").map((each) => html`<option value=${each}>${each}</option>`)}</select></label>
    ${field("hours", "Ends after, in hours", isLink ? "12 h unused" : "never", false)}</div><p class="after"><button class="button" ?disabled=${off}>${isLink ? "Make a link" : "Make a token"}</button></p></form>`;
}
