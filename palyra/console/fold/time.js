// Spans and moments in words.  Pure: the present is an argument.

/** A span as people read it: `0.2 s`, `41 s`, `3:12`, `12 min`, `2 h`, `9 d`. */
export function span(ms) {
  const s = Math.max(0, ms) / 1_000;
  if (s < 10) return `${s.toFixed(1)} s`;
  if (s < 60) return `${Math.floor(s)} s`;
  if (s < 3_600) return `${Math.floor(s / 60)} min`;
  if (s < 172_800) return `${Math.floor(s / 3_600)} h`;
  return `${Math.floor(s / 86_400)} d`;
}

/** What is left, to the second: `3:12`, `1:04:00`; `0:00` when it is over. */
export function clock(ms) {
  const s = Math.max(0, Math.ceil(ms / 1_000));
  const pad = (number) => String(number).padStart(2, "0");
  const [hours, minutes, seconds] = [Math.floor(s / 3_600), Math.floor(s / 60) % 60, s % 60];
  return hours ? `${hours}:${pad(minutes)}:${pad(seconds)}` : `${minutes}:${pad(seconds)}`;
}

/** A duration of work: `180 ms`, `2.4 s`, `1:05`. */
export function took(ms) {
  if (ms < 1_000) return `${Math.round(ms)} ms`;
  return ms < 60_000 ? `${(ms / 1_000).toFixed(1)} s` : clock(ms);
}

/** The moment whole, for a title: local time with its zone, or UTC. */
export function moment(ms, isUtc = false) {
  if (!ms) return "";
  const at = new Date(ms);
  return isUtc ? at.toISOString().replace("T", " ").replace(/\.\d+Z$/, " UTC") : at.toLocaleString("sv-SE", { timeZoneName: "short" });
}

/** The time of day: `12:04:31`. */
export function timeOfDay(ms) {
  return new Date(ms).toLocaleTimeString("sv-SE");
}

/** The local minute: `2026-11-27 09:04`. */
export function minute(ms) {
  const at = new Date(ms);
  const pad = (number) => String(number).padStart(2, "0");
  return `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())} ${pad(at.getHours())}:${pad(at.getMinutes())}`;
}
