// The open conversation: what was said in it, and the turn that is going on.

import * as api from "./api.js";
import { make } from "./dom.js";
import { plainText } from "./markdown.js";
import { Answer, Question } from "./messages.js";
import { openSources } from "./sources.js";
import { explain, say } from "./strings.js";

const PAGE = 50;
// A search may lead far back; further than so many pages nobody is taken.
const MOST_PAGES_BACK = 40;
const UNFINISHED = "evi-unfinished";

const scroller = document.getElementById("scroller");
const list = document.getElementById("messages");
const older = document.getElementById("older");
const down = document.getElementById("down");
const announcer = document.getElementById("announcer");

export const announce = (text) => {
  announcer.textContent = text;
};

export class Conversation {
  sessionId = null;
  #messages = [];
  #before = null;
  #turn = null;
  // Those that go on while another conversation is open.
  #running = new Map();
  #opening = 0;
  #loading = null;
  #follows = true;

  constructor({ transport, mayAsk, onStarted, onChanged, onState, onProblem }) {
    Object.assign(this, { transport, mayAsk, onStarted, onChanged, onState, onProblem });
    older.addEventListener("click", () => this.#loadOlder().catch(onProblem));
    down.addEventListener("click", () => this.#toEnd());
    scroller.addEventListener("scroll", () => {
      this.#follows = scroller.scrollHeight - scroller.scrollTop - scroller.clientHeight < 80;
      down.hidden = this.#follows;
    });
  }

  get isAnswering() {
    return this.#turn !== null;
  }

  get isEmpty() {
    return this.#messages.length === 0;
  }

  /** Nothing said yet: a question begins a new session. */
  clear() {
    this.#opening += 1;
    this.#show(null, []);
  }

  async open(sessionId, { messageId = null } = {}) {
    const opening = ++this.#opening;
    const wasRunning = this.#running.has(sessionId);
    let page = await api.readMessages(sessionId, { limit: PAGE });
    // The answer came in between, and may be among the messages or not.
    if (wasRunning && !this.#running.has(sessionId)) page = await api.readMessages(sessionId, { limit: PAGE });
    if (opening !== this.#opening) return;
    this.#show(sessionId, page.results, page.has_more ? page.before : null);
    const turn = this.#running.get(sessionId) ?? this.#leftBehind(sessionId);
    if (turn) this.#attach(turn);
    if (messageId) await this.#showMessage(messageId);
  }

  /** Ask at the end of the conversation. Whether it was asked. */
  ask(text) {
    if (this.#turn || !this.mayAsk(text)) return false;
    this.#begin({ text });
    return true;
  }

  stop() {
    if (this.#turn) this.transport.cancel(this.#turn.id);
  }

  #show(sessionId, messages, before = null) {
    this.sessionId = sessionId;
    this.#turn = null;
    this.#messages = [];
    this.#before = before;
    list.replaceChildren();
    list.append(...messages.map((message) => this.#entry(message)).map((entry) => this.#add(entry)));
    older.hidden = !before;
    this.#settle();
    this.#toEnd();
  }

  #entry({ id = null, role, content, status = "complete", metadata = {} }) {
    if (role === "assistant") {
      const answer = this.#newAnswer();
      const citations = Array.isArray(metadata?.citations) ? metadata.citations : [];
      answer.finish({ text: content, citations, status });
      return { id, role, view: answer };
    }
    const onEdit = (question, text) => this.#change(question, text).catch(this.onProblem);
    return { id, role, view: new Question(content, { onEdit }) };
  }

  #newAnswer() {
    return new Answer({
      onSources: (answer, marker, from) => openSources(answer.citations, { marker, from }),
      onRegenerate: (answer) => this.#regenerate(answer).catch(this.onProblem),
    });
  }

  #add(entry, { first = false } = {}) {
    if (first) this.#messages.unshift(entry);
    else this.#messages.push(entry);
    if (entry.id) entry.view.node.id = `m-${entry.id}`;
    return entry.view.node;
  }

  /** What can be done with the messages, after anything changed. */
  #settle() {
    const last = this.#messages.at(-1);
    for (const { view } of this.#messages) {
      view.allowChanges(!this.#turn);
      view.node.classList.toggle("last", view === last?.view);
    }
    this.onState();
  }

  /** What came before; of two that want it at once, both get the same. */
  #loadOlder() {
    this.#loading ??= this.#loadPage().finally(() => {
      this.#loading = null;
    });
    return this.#loading;
  }

  async #loadPage() {
    const height = scroller.scrollHeight - scroller.scrollTop;
    const sessionId = this.sessionId;
    const page = await api.readMessages(sessionId, { limit: PAGE, before: this.#before });
    if (sessionId !== this.sessionId) return;
    this.#before = page.has_more ? page.before : null;
    older.hidden = !this.#before;
    const nodes = page.results.map((message) => this.#entry(message)).reverse().map((entry) => this.#add(entry, { first: true }));
    list.prepend(...nodes.reverse());
    this.#settle();
    scroller.scrollTop = scroller.scrollHeight - height;
  }

  async #showMessage(messageId) {
    const find = () => document.getElementById(`m-${messageId}`);
    for (let pages = 0; !find() && this.#before && pages < MOST_PAGES_BACK; pages += 1) await this.#loadOlder();
    const node = find();
    if (!node) return;
    node.scrollIntoView({ block: "center" });
    node.classList.add("found");
  }

  async #change(question, text) {
    if (this.#turn || !this.mayAsk(text)) return;
    await this.#askAgain(this.#messages.findIndex(({ view }) => view === question), text);
  }

  async #regenerate(answer) {
    if (this.#turn) return;
    const place = this.#messages.findIndex(({ view }) => view === answer);
    const asked = this.#messages.slice(0, place).findLastIndex(({ role }) => role === "user");
    if (asked >= 0) await this.#askAgain(asked, this.#messages[asked].view.text);
  }

  /** Ask at a place in the thread; what came after it is left. EVI is told after which message, and has the thread itself. */
  async #askAgain(place, text) {
    const asked = this.#messages[place];
    const opening = this.#opening;
    const before = () => this.#messages.slice(0, this.#messages.indexOf(asked));
    // The answer before it has an id, as far as EVI has it; a question that was just asked here does not.
    const lastId = () => before().findLast(({ id }) => id)?.id ?? null;
    while (!lastId() && this.#before) {
      await this.#loadOlder();
      // Another conversation was opened meanwhile, or another question asked.
      if (opening !== this.#opening || this.#turn) return;
    }
    const [kept, after] = [before(), lastId()];
    for (const { view } of this.#messages.slice(kept.length)) view.node.remove();
    this.#messages = kept;
    this.#begin({ text, after });
  }

  #begin({ text, after }) {
    list.append(this.#add(this.#entry({ role: "user", content: text })));
    const turn = { sessionId: this.sessionId, question: text, after, text: "", citations: [], doing: say("thinking"), view: null };
    turn.id = this.transport.ask({ sessionId: turn.sessionId, text, after }, (frame) => this.#receive(turn, frame));
    if (turn.sessionId) this.#running.set(turn.sessionId, turn);
    this.#attach(turn);
    announce(say("answering"));
    this.#toEnd();
  }

  /** Show a turn that goes on, at the end of the open conversation. */
  #attach(turn) {
    this.#turn = turn;
    // Stored already, though its end has not been told yet.
    if (this.#messages.at(-1)?.role === "assistant") this.#messages.pop().view.node.remove();
    const answer = this.#newAnswer();
    turn.view = answer;
    answer.node.setAttribute("aria-busy", "true");
    turn.entry = { id: turn.answerId ?? null, role: "assistant", view: answer };
    list.append(this.#add(turn.entry));
    answer.showDoing(turn.text ? "" : turn.doing);
    answer.grow(turn.text, turn.citations);
    this.#settle();
    this.#follow();
  }

  /** The turn that a reload of the page left behind, taken up again, unless its answer was stored meanwhile. */
  #leftBehind(sessionId) {
    const left = remembered();
    if (left?.sessionId !== sessionId) return null;
    const last = this.#messages.at(-1);
    if (last?.role !== "user" || last.view.text !== left.text) {
      forget();
      return null;
    }
    const turn = { id: left.id, sessionId, question: left.text, after: left.after, text: "", citations: [], doing: say("thinking") };
    this.#running.set(sessionId, turn);
    this.transport.resume(left, (frame) => this.#receive(turn, frame));
    return turn;
  }

  #receive(turn, frame) {
    switch (frame.type) {
      case "start":
        turn.text = [...turn.text].slice(0, frame.received).join("");
        turn.answerId = frame.message_id;
        if (turn.entry) turn.entry.id = frame.message_id;
        this.#started(turn, frame.session_id);
        break;
      case "status":
        turn.doing = frame.done ? "" : frame.text;
        if (this.#turn === turn) turn.view.showDoing(turn.text ? "" : turn.doing || say("thinking"));
        break;
      case "delta":
        turn.text += frame.text;
        if (this.#turn === turn) {
          turn.view.showDoing("");
          turn.view.grow(turn.text, turn.citations, () => this.#follow());
        }
        break;
      case "citation":
        turn.citations = [...turn.citations.filter(({ marker }) => marker !== frame.citation.marker), frame.citation];
        break;
      case "done":
        this.#end(turn, { said: say("answered", plainText(turn.text)) });
        break;
      case "cancelled":
        this.#end(turn, { status: "interrupted", said: say("stopped") });
        break;
      case "error":
        this.#end(turn, { status: turn.text ? "interrupted" : "failed", problem: explain(frame), said: explain(frame) });
        break;
    }
  }

  #started(turn, sessionId) {
    const isNew = turn.sessionId === null;
    turn.sessionId = sessionId;
    this.#running.set(sessionId, turn);
    remember({ id: turn.id, sessionId, text: turn.question, after: turn.after });
    if (!isNew) return;
    if (this.#turn === turn) this.sessionId = sessionId;
    this.onStarted(sessionId, { isShown: this.#turn === turn });
  }

  #end(turn, { status = "complete", problem = "", said }) {
    if (turn.sessionId) this.#running.delete(turn.sessionId);
    if (remembered()?.id === turn.id) forget();
    if (this.#turn === turn) {
      this.#turn = null;
      turn.view.finish({ text: turn.text, citations: turn.citations, status, problem });
      this.#settle();
      this.#follow();
      announce(said);
    }
    this.onChanged();
  }

  #follow() {
    if (this.#follows) this.#toEnd();
  }

  #toEnd() {
    scroller.scrollTop = scroller.scrollHeight;
    this.#follows = true;
    down.hidden = true;
  }
}

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(UNFINISHED));
  } catch {
    return null;
  }
}

function remember(turn) {
  try {
    sessionStorage.setItem(UNFINISHED, JSON.stringify(turn));
  } catch {
    // A browser that keeps nothing shows the answer when it is stored.
  }
}

function forget() {
  try {
    sessionStorage.removeItem(UNFINISHED);
  } catch {
    // As above.
  }
}
