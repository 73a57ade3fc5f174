// The service worker: a push says that a question waits, and nothing else.  It keeps and intercepts nothing.

self.addEventListener("install", () => self.skipWaiting());
self.addEventListener("activate", (event) => event.waitUntil(self.clients.claim()));

self.addEventListener("push", (event) => {
  event.waitUntil(self.registration.showNotification("palyra", { body: "A question waits", tag: "question", renotify: true }));
});

self.addEventListener("notificationclick", (event) => {
  event.notification.close();
  event.waitUntil(openInbox(new URL("#/inbox", self.registration.scope).href));
});

/** Go there in the page that is open already, or in a new one. */
async function openInbox(address) {
  const pages = await self.clients.matchAll({ type: "window" });
  const page = pages.find(({ url }) => url.split("#")[0] === self.registration.scope);
  if (!page) return void (await self.clients.openWindow(address));
  await page.navigate(address);
  await page.focus();
}
