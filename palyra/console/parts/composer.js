// The composer: a message with its references and files, what it will cost, and where it goes.
//
// Its state is a Draft, kept by the screen: {text, files, preview, mode, agent, workspace, sessionMode, says, isSending}.

import { asBlock, isInReference } from "../fold/conversation.js";
import { grouped, size } from "../fold/text.js";
import { html, keyed } from "../view.js";
import { icon } from "./icon.js";
import { labelOfTrust } from "./trust.js";

const PREVIEW_MS = 350;
const PICTURE_BYTES = 5_242_880;
const TEXT_BYTES = 262_144;
const PICTURES = 8;
const FRAME_BYTES = 4_096; // of a message beside text and pictures
const AMID = { steer: "taken up at the next step", followup: "waits its turn", interrupt: "ends the answer under way" };

export class Draft {
  files = [];
  preview = null;
  mode = "steer";
  agent = "";
  workspace = "";
  sessionMode = "ask";
  says = "";
  isSending = false;
  isCancelling = false;
  #context;
  #key;
  #timer;
  #asked = 0;
  #nextId = 0;

  constructor(context, session_id) {
    this.#context = context;
    this.#key = `palyra draft ${session_id}`;
    this.session_id = session_id;
    this.text = sessionStorage.getItem(this.#key) ?? "";
    if (this.text) this.#look(this.text);
  }

  /** The message as it is sent: the text, then text files as blocks of code. */
  get message() {
    return [this.text.trimEnd(), ...this.files.filter((file) => file.text !== undefined).map((file) => asBlock(file.name, file.text))].filter(Boolean).join("\n\n");
  }

  /** What stands between this and sending; "" if nothing does. */
  get obstacle() {
    if (!this.#context.isLive()) return "Not connected: the text stays here.";
    if (this.files.some((file) => file.error)) return "A file cannot be sent: remove it.";
    const most = this.#context.wire.hello?.limits.max_message_bytes ?? Infinity;
    const bytes = new Blob([this.message]).size + this.files.reduce((sum, { data }) => sum + (data?.length ?? 0), FRAME_BYTES);
    if (bytes > most) return `${size(bytes)} are more than the ${size(most)} of one message here (server.max_message_bytes).`;
    return "";
  }

  write(text, caret = text.length) {
    this.text = text;
    this.says = "";
    sessionStorage.setItem(this.#key, text);
    this.#look(text.slice(0, caret));
    this.#context.store.touch();
  }

  async add(list) {
    for (const file of list) {
      const row = { id: ++this.#nextId, name: file.name || "pasted", bytes: file.size, isPicture: /^image\/(png|jpeg|gif|webp)$/.test(file.type) };
      this.files.push(row);
      await this.#read(row, file);
    }
    this.#look(this.text);
    this.#context.store.touch();
  }

  remove(row) {
    this.files = this.files.filter((each) => each !== row);
    if (row.url) URL.revokeObjectURL(row.url);
    this.#look(this.text);
    this.#context.store.touch();
  }

  /** Send it; resolves to the started run, or to undefined if it was refused. */
  async send(to) {
    if (this.isSending || this.obstacle || !this.message.trim()) return undefined;
    this.isSending = true;
    this.says = "";
    this.#context.store.touch();
    const attachments = this.files.filter((file) => file.data).map(({ data, name, media_type }) => ({ type: "image", data, name, media_type }));
    try {
      const started = await this.#context.ask("run.start", { text: this.message, ...(attachments.length ? { attachments } : {}), ...to });
      this.files.forEach((file) => file.url && URL.revokeObjectURL(file.url));
      this.files = [];
      this.preview = null;
      this.write("");
      return started;
    } catch (error) {
      this.says = `${error.code}: ${error.message}`;
      return undefined;
    } finally {
      this.isSending = false;
      this.#context.store.touch();
    }
  }

  async #read(row, file) {
    try {
      if (row.isPicture) {
        if (file.size > PICTURE_BYTES) throw new Error(`more than ${size(PICTURE_BYTES)}`);
        if (this.files.filter((each) => each.isPicture).length > PICTURES) throw new Error(`more than ${PICTURES} pictures`);
        row.data = toBase64(new Uint8Array(await file.arrayBuffer()));
        row.media_type = file.type;
        row.url = URL.createObjectURL(file);
      } else {
        if (file.size > TEXT_BYTES) throw new Error(`more than ${size(TEXT_BYTES)}; put it into the workspace and name it with @file:`);
        row.text = new TextDecoder("utf-8", { fatal: true }).decode(await file.arrayBuffer());
        if (row.text.includes("\0")) throw new TypeError("binary");
      }
    } catch (error) {
      row.error = error instanceof TypeError ? "neither a picture (PNG, JPEG, GIF, WebP) nor a text" : error.message;
    }
  }

  /** Ask what it costs, once nothing is typed; a reference that goes on is not looked up half. */
  #look(before) {
    clearTimeout(this.#timer);
    const text = this.message;
    if (!text.trim()) return void (this.preview = null);
    if (isInReference(before)) return undefined;
    this.#timer = setTimeout(async () => {
      const asked = ++this.#asked;
      const where = this.session_id === "new" ? { workspace: this.workspace || undefined } : { session_id: this.session_id };
      const found = await this.#context.ask("reference.preview", { text, agent: this.agent || undefined, ...where }).catch((error) => ({ error }));
      if (asked === this.#asked && this.message) this.preview = found;
      this.#context.store.touch();
    }, PREVIEW_MS);
    return undefined;
  }

  /** Look up a reference at the end, too: the field was left. */
  settle() {
    this.#look("");
  }
}

function toBase64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32_768) text += String.fromCharCode(...bytes.subarray(at, at + 32_768));
  return btoa(text);
}

// --- What is shown ------------------------------------------------------------------------------

/** `act` has send(), cancel(); `active` is the run that answers now. */
export function composer(context, draft, { active, note, choices, act }) {
  if (!context.may("runs:write")) return html`<div class="composer"><p class="muted">This role lacks the scope runs:write: the conversation can be read, not continued.</p></div>`;
  const why = draft.obstacle;
  const take = (list) => void draft.add([...list]);
  return html`<form class="composer" aria-label="Composer" @submit=${(event) => (event.preventDefault(), act.send())} @dragover=${(event) => event.preventDefault()}
      @drop=${(event) => (event.preventDefault(), take(event.dataTransfer.files))}>
    ${choices}
    <div class="box">
      <textarea id="message" class="draft" aria-label="Message" rows="2" placeholder=${active ? "Say something while it works" : "What shall be done? @file:path, @folder:path, @url: and @diff bring text along"}
        .value=${draft.text} @input=${({ target }) => draft.write(target.value, target.selectionStart)} @keydown=${(event) => press(event, act)}
        @blur=${() => draft.settle()} @paste=${({ clipboardData }) => take(clipboardData.files)}></textarea>
      ${draft.files.length ? html`<ul class="attached" aria-label="Files">${keyed(draft.files, (file) => file.id, (file) => attached(draft, file))}</ul>` : null}
      ${references(draft.preview)}
    </div>
    <div class="send"><label class="button quiet attach">Attach …<input type="file" multiple aria-label="Attach pictures or text files" @change=${({ target }) => (take(target.files), (target.value = ""))}></label>
      <span class="muted cut" role="status">${draft.says || why ? html`<span class=${draft.says ? "bad" : "wait"}>${draft.says || why}</span>` : html`${cost(draft)}${active ? html`${draft.preview?.tokens ? ", " : ""}${AMID[draft.mode]}` : null}`}</span>
      <span class="right">${note}</span>
      ${active ? html`<select class="field" aria-label="While a run answers" @change=${({ target }) => ((draft.mode = target.value), context.store.touch())}>${Object.keys(AMID).map((name) => html`<option value=${name} ?selected=${draft.mode === name}>${name}</option>`)}</select>
        <button class="button bad" type="button" @click=${act.cancel}>${draft.isCancelling ? "Really cancel" : "Cancel …"}</button>` : null}
      <button class="button go" ?disabled=${Boolean(why) || draft.isSending || !draft.message.trim()}>Send <kbd>Ctrl Enter</kbd></button></div></form>`;
}

function press(event, act) {
  if (event.isComposing) return;
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !event.repeat) {
    event.preventDefault();
    act.send();
  } else if (event.key === "Escape") event.target.blur();
}

function cost({ preview }) {
  if (!preview?.tokens) return "";
  return html`<b class="strong">${grouped(preview.tokens)} tokens</b> with this message`;
}

function attached(draft, file) {
  return html`<li>${file.url ? html`<img src=${file.url} alt="" width="24" height="24">` : icon(file.error ? "warn" : "check", file.error ? "bad" : "muted")}
    <span class="cut">${file.name}</span> <span class=${file.error ? "bad small" : "muted small"}>${size(file.bytes)}${file.error ? `: ${file.error}` : file.isPicture ? ", picture, 1 600 tokens" : ", text"}</span>
    <button class="link" type="button" aria-label="Remove ${file.name}" @click=${() => draft.remove(file)}>remove</button></li>`;
}

/** Findings without their places. */
const named = (findings) => [...new Set(findings.map((each) => each.split(":")[0]))].join(", ");

function references(preview) {
  if (preview?.error) return html`<p class="small muted refs">The size is not known: ${preview.error.message}</p>`;
  if (!preview?.references?.length) return null;
  return html`<table class="refs"><thead><tr><th scope="col">Reference</th><th scope="col">Trust</th><th scope="col" class="num">Tokens</th></tr></thead>
    <tbody>${preview.references.map((each) => html`<tr><td class="mono" title=${each.reference}>${each.reference}</td>
      <td>${each.error ? html`<span class="bad" title=${each.error}>${each.error}</span>` : html`${labelOfTrust(each.trust)}${each.findings?.length ? html` <span class="taint">${icon("drop")} ${named(each.findings)}</span>` : null}${each.note ? html` <span class="muted" title=${each.note}>${each.note}</span>` : null}`}</td>
      <td class="num">${grouped(each.tokens ?? 0)}</td></tr>`)}</tbody></table>`;
}
