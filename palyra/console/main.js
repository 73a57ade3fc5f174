// The page: connects, and shows the state of the connection.

import { connect } from "./client.js";
import { endpoint, hasLogin, logIn, takeCode } from "./session.js";

const app = document.getElementById("app");

function show(text) {
  app.textContent = text;
}

try {
  const code = takeCode();
  if (code) await logIn(code);
  if (!hasLogin()) show("Not logged in: `palyra console` in a terminal prints a link.");
  else {
    show("connecting");
    const client = await connect(async () => endpoint(), { name: "palyra-console" });
    const { principal, role } = client.welcome;
    show(`live: ${principal}, ${role}`);
  }
} catch (error) {
  show(error.message);
}
