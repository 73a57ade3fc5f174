// The switch "Ring on this device": a browser's push service rings when a question waits.
//
// The browser gets an address from its vendor's push service, and the daemon posts to it, without
// content (worker.js shows a fixed text).  State: `ring` = {state, why}.

import { html, workerAddress } from "../view.js";

const SAYS = {
  off: "This device does not ring",
  busy: "One moment",
  on: "This device rings while its login lasts",
  blocked: "The browser blocks notifications of this page: allow them in its settings for the site",
  impossible: "Ringing needs https or loopback, and a browser with push",
};

const isPossible = () => globalThis.isSecureContext && "serviceWorker" in navigator && "PushManager" in globalThis && "Notification" in globalThis;
const isBlocked = () => isPossible() && Notification.permission === "denied";

/** Read whether this browser rings for this login. */
export async function readRing(context) {
  if (!context.may("approvals:write")) return;
  const set = (state, why = "") => context.store.set({ ring: { state, why } });
  if (!isPossible()) return set("impossible");
  if (isBlocked()) return set("blocked");
  try {
    const registration = await navigator.serviceWorker.getRegistration();
    const subscription = await registration?.pushManager.getSubscription();
    const { public_key, endpoint } = await context.ask("push.key");
    set(subscription && subscription.endpoint === endpoint && isFor(subscription, public_key) ? "on" : "off");
  } catch (error) {
    set("off", error.message);
  }
}

/** The line with the button; nothing for a role that may not answer. */
export function ringLine(context) {
  const { ring } = context.store.state;
  if (!ring) return null;
  const { state, why } = ring;
  const act = state === "on" ? quiet : state === "off" ? begin : null;
  return html`<p class="ring" aria-live="polite"><span>${why || SAYS[state]}</span>${act
    ? html` <button class="link" ?disabled=${!context.isLive()} @click=${() => void change(context, act)}>${state === "on" ? "do not ring" : "ring on this device"}</button>`
    : null}</p>`;
}

async function change(context, act) {
  context.store.set({ ring: { state: "busy" } });
  try {
    await act(context);
    await readRing(context);
  } catch (error) {
    context.store.set({ ring: isBlocked() ? { state: "blocked" } : { state: "off", why: `Not possible now: ${error.message}` } });
  }
}

async function begin(context) {
  if ((await Notification.requestPermission()) !== "granted") throw new Error("the browser was not allowed to notify");
  await navigator.serviceWorker.register(workerAddress(), { updateViaCache: "none" });
  const { pushManager } = await navigator.serviceWorker.ready;
  const { public_key } = await context.ask("push.key");
  let subscription = await pushManager.getSubscription();
  if (subscription && !isFor(subscription, public_key)) {
    await subscription.unsubscribe(); // that of another home, or of one before its key was lost
    subscription = null;
  }
  subscription ??= await pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: bytesOf(public_key) });
  await context.ask("push.subscribe", { endpoint: subscription.endpoint });
}

async function quiet(context) {
  await context.ask("push.unsubscribe");
  const registration = await navigator.serviceWorker.getRegistration();
  await (await registration?.pushManager.getSubscription())?.unsubscribe();
}

const bytesOf = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (each) => each.charCodeAt(0));

/** True if the browser subscribed with this key. */
function isFor({ options }, publicKey) {
  const own = new Uint8Array(options?.applicationServerKey ?? []);
  return bytesOf(publicKey).every((each, at) => each === own[at]);
}
