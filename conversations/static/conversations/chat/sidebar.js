// The list of conversations: open, search, rename, pin, export, delete.

import * as api from "./api.js";
import { iconButton, make } from "./dom.js";
import { confirmed, newTitle, openMenu } from "./overlays.js";
import { say } from "./strings.js";

const PAGE = 100;
const TYPING_MS = 200;
const DAY_MS = 86_400_000;

const list = document.getElementById("sessions");
const field = document.getElementById("search");

export const addressOf = (id) => (id ? `/?session=${id}` : "/");

export class Sidebar {
  #sessions = [];
  #cursor = null;
  #openId = null;
  #timer = 0;
  #asked = 0;

  constructor({ onOpen, onRenamed, onDeleted, onProblem }) {
    Object.assign(this, { onOpen, onRenamed, onDeleted, onProblem });
    field.addEventListener("input", () => {
      clearTimeout(this.#timer);
      this.#timer = setTimeout(() => this.#search(), TYPING_MS);
    });
    field.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && field.value) {
        event.stopPropagation();
        field.value = "";
        this.#search();
      } else if (event.key === "ArrowDown") {
        event.preventDefault();
        list.querySelector("a")?.focus();
      }
    });
    list.addEventListener("keydown", (event) => this.#walk(event));
  }

  async refresh() {
    const page = await api.listSessions({ limit: PAGE });
    this.#sessions = page.results;
    this.#cursor = api.cursorOf(page);
    if (!field.value.trim()) this.#show();
  }

  select(id) {
    this.#openId = id;
    for (const link of list.querySelectorAll("a[data-id]")) mark(link, link.dataset.id === id);
  }

  find(id) {
    return this.#sessions.find((session) => session.id === id);
  }

  /** Draw once more, in another language for example. */
  redraw() {
    if (field.value.trim()) this.#search();
    else this.#show();
  }

  #show() {
    const groups = new Map();
    for (const session of this.#sessions) {
      const name = groupOf(session);
      groups.set(name, [...(groups.get(name) ?? []), session]);
    }
    const order = ["pinned", "today", "yesterday", "week", "earlier"].filter((name) => groups.has(name));
    const more = this.#cursor && make("button", { type: "button", class: "text-button", onclick: () => this.#more().catch(this.onProblem) }, say("more"));
    const nothing = !order.length && make("p", { class: "note" }, say("empty"));
    list.replaceChildren(...order.map((name) => this.#group(say(name), groups.get(name))), ...[more, nothing].filter(Boolean));
  }

  #group(name, sessions) {
    return make("section", {}, make("h2", {}, name), make("ul", {}, ...sessions.map((session) => this.#row(session))));
  }

  #row(session) {
    const title = session.title || say("untitled");
    const link = this.#link(session.id, title, {});
    const menu = iconButton("dots", say("actions", title), () => this.menuFor(session, menu), { "aria-haspopup": "menu" });
    return make("li", { class: "session" }, link, menu);
  }

  #link(id, title, { messageId = null, snippet = null }) {
    const onclick = (event) => {
      // With a key held the browser opens it in a tab or window of its own.
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
      event.preventDefault();
      this.onOpen(id, { messageId });
    };
    const link = make("a", { href: addressOf(id), "data-id": id, title, onclick }, make("span", { class: "session-title" }, title), snippet);
    mark(link, id === this.#openId);
    return link;
  }

  /** What can be done with a session. `anchor` is the button that asks. */
  menuFor(session, anchor) {
    openMenu(anchor, [
      { icon: "edit", text: say("rename"), run: () => this.#rename(session, anchor) },
      { icon: "pin", text: say(session.pinned ? "unpin" : "pin"), run: () => this.#change(session, { pinned: !session.pinned }) },
      { icon: "download", text: say("markdown"), href: api.exportPath(session.id, "markdown") },
      { icon: "download", text: say("json"), href: api.exportPath(session.id, "json") },
      { icon: "trash", text: say("delete"), danger: true, run: () => this.#delete(session, anchor) },
    ]);
  }

  async #rename(session, anchor) {
    const title = await newTitle(session.title);
    if (title && title !== session.title) await this.#change(session, { title });
    if (anchor.isConnected) anchor.focus();
  }

  async #change(session, changes) {
    try {
      Object.assign(session, await api.changeSession(session.id, changes));
      this.onRenamed(session);
      await this.refresh();
    } catch (refusal) {
      this.onProblem(refusal);
    }
    this.redraw();
  }

  async #delete(session, anchor) {
    const isSure = await confirmed({
      question: say("deleteQuestion", session.title || say("untitled")),
      warning: say("deleteWarning"),
      action: say("delete"),
    });
    if (!isSure) {
      if (anchor.isConnected) anchor.focus();
      return;
    }
    try {
      await api.deleteSession(session.id);
    } catch (refusal) {
      // What somebody else has deleted is gone all the same.
      if (refusal.status !== 404) return this.onProblem(refusal);
    }
    this.onDeleted(session);
    await this.refresh();
    this.redraw();
  }

  async #more() {
    const page = await api.listSessions({ limit: PAGE, cursor: this.#cursor });
    this.#sessions.push(...page.results);
    this.#cursor = api.cursorOf(page);
    this.#show();
  }

  async #search() {
    const text = field.value.trim();
    const asked = ++this.#asked;
    if (!text) return this.#show();
    const [titles, contents] = await Promise.allSettled([api.listSessions({ q: text, limit: 20 }), api.search(text)]);
    if (asked !== this.#asked) return;
    const named = titles.status === "fulfilled" ? titles.value.results : [];
    const said = contents.status === "fulfilled" ? contents.value.results.filter((result) => result.session_id) : [];
    const groups = [];
    if (named.length) groups.push(this.#group(say("inTitles"), named));
    if (said.length) {
      groups.push(make("section", {}, make("h2", {}, say("inContents")), make("ul", {}, ...said.map((result) => this.#found(result)))));
    }
    list.replaceChildren(...(groups.length ? groups : [make("p", { class: "note", role: "status" }, say("nothingFound"))]));
  }

  #found({ kind, id, session_id: sessionId, title, snippet, marks }) {
    const words = make("span", { class: "snippet" }, ...marked(snippet, marks));
    const link = this.#link(sessionId, title || say("untitled"), { messageId: kind === "message" ? id : null, snippet: words });
    return make("li", { class: "session" }, link);
  }

  #walk(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !event.target.matches("a")) return;
    event.preventDefault();
    const links = [...list.querySelectorAll("a")];
    const place = links.indexOf(event.target) + step;
    if (place < 0) field.focus();
    else links[place]?.focus();
  }
}

function mark(link, isOpen) {
  if (isOpen) link.setAttribute("aria-current", "page");
  else link.removeAttribute("aria-current");
}

function groupOf(session) {
  if (session.pinned) return "pinned";
  const days = Math.round((midnight(new Date()) - midnight(new Date(session.last_accessed))) / DAY_MS);
  if (days <= 0) return "today";
  if (days === 1) return "yesterday";
  return days < 7 ? "week" : "earlier";
}

const midnight = (moment) => new Date(moment.getFullYear(), moment.getMonth(), moment.getDate()).getTime();

/** A snippet in which the words that were found stand out. EVI counts characters, and JavaScript halves of some. */
function marked(snippet, marks) {
  const characters = [...snippet];
  const between = (from, to) => characters.slice(from, to).join("");
  let at = 0;
  const pieces = marks.flatMap(([from, to]) => {
    const before = between(at, from);
    at = to;
    return [before, make("mark", {}, between(from, to))];
  });
  return [...pieces, between(at)];
}
