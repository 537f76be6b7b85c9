// The page as a whole: what is open, what the keys do, how it looks.

import { listSessions, readSession } from "./api.js";
import { make } from "./dom.js";
import { Conversation } from "./conversation.js";
import { tell, tellUntilChanged } from "./overlays.js";
import { addressOf, Sidebar } from "./sidebar.js";
import * as sources from "./sources.js";
import { explain, say, translatePage } from "./strings.js";
import { Transport } from "./transport.js";

const page = document.documentElement;
const app = document.getElementById("app");
const column = document.getElementById("column");
const heading = document.getElementById("title");
const actions = document.getElementById("session-actions");
const welcome = document.getElementById("welcome");
const examples = document.getElementById("examples");
const form = document.getElementById("composer");
const question = document.getElementById("question");
const send = document.getElementById("send");
const stop = document.getElementById("stop");
const drawerButton = document.getElementById("open-sidebar");
const settings = document.getElementById("settings");

const isNarrow = matchMedia("(max-width: 47.99rem)");
const hasMouse = matchMedia("(hover: hover)");
let session = null;

const transport = new Transport({
  onConnection: (state) => {
    tellUntilChanged(state === "lost" ? say("reconnecting") : "");
    if (state !== "lost") tell(say("connected"));
  },
  // A session that ended leads to the page for signing in; anything else is worth another try.
  mayConnect: () => listSessions({ limit: 1 }).then(() => true, ({ status }) => status !== 401),
});

const conversation = new Conversation({
  transport,
  mayAsk: isShortEnough,
  onStarted: begin,
  onChanged: catchUp,
  onState: showState,
  onProblem: report,
});

const sidebar = new Sidebar({
  onOpen: (id, options) => {
    openDrawer(false);
    visit(id, options);
  },
  onRenamed: (changed) => {
    if (changed.id === conversation.sessionId) showSession(changed);
  },
  onDeleted: (deleted) => {
    tell(say("deleted"));
    if (deleted.id === conversation.sessionId) visit(null);
  },
  onProblem: report,
});

function report(refusal) {
  if (refusal.status === undefined) throw refusal;
  if (refusal.status !== 401) tell(refusal.status === 0 ? say("offline") : explain(refusal));
}

/** A session that began with the question just asked gets its place in the list. */
function begin(id, { isShown }) {
  if (isShown) {
    history.pushState(null, "", addressOf(id));
    showSession({ id, title: "" });
  }
  catchUp();
}

/** What EVI says of the sessions: the open one is named with its first answer. */
async function catchUp() {
  const id = conversation.sessionId;
  try {
    const read = id && !session?.title ? await readSession(id) : null;
    if (read && conversation.sessionId === id) showSession(read);
    await sidebar.refresh();
  } catch (refusal) {
    report(refusal);
  }
}

/** Go to a conversation, or to a new one. */
function visit(id, options) {
  if (id !== conversation.sessionId || !id) history.pushState(null, "", addressOf(id));
  return show(id, options);
}

async function show(id, { messageId = null, takesFocus = true } = {}) {
  sources.closeSources({ giveFocusBack: false });
  if (takesFocus) focusQuestion();
  if (!id) {
    conversation.clear();
    showSession(null);
    return;
  }
  try {
    const [read] = await Promise.all([readSession(id), conversation.open(id, { messageId })]);
    if (conversation.sessionId === id) showSession(read);
  } catch (refusal) {
    if (![400, 404].includes(refusal.status)) return report(refusal);
    history.replaceState(null, "", "/");
    await show(null);
    tell(say("unknownSession"));
  }
}

function showSession(shown) {
  session = shown;
  const title = shown ? shown.title || say("untitled") : say("new");
  heading.textContent = title;
  document.title = shown ? `${title} – EVI` : "EVI";
  actions.hidden = !shown;
  if (shown) actions.setAttribute("aria-label", say("actions", title));
  sidebar.select(shown?.id ?? null);
}

function showState() {
  welcome.hidden = !conversation.isEmpty;
  send.hidden = conversation.isAnswering;
  stop.hidden = !conversation.isAnswering;
}

function showExamples() {
  const example = (text) => make("li", {}, make("button", { type: "button", onclick: () => ask(text) }, text));
  examples.replaceChildren(...say("examples").map(example));
}

function ask(text) {
  if (!text.trim() || conversation.isAnswering || !conversation.ask(text.trim())) return;
  question.value = "";
  fit();
  focusQuestion();
}

/** What is longer EVI refuses; told before it is sent, it is still there to be made shorter. */
function isShortEnough(text) {
  // Counted as EVI counts, in characters and not in halves of them.
  const isShort = [...text].length <= Number(question.dataset.most);
  if (!isShort) tell(say("tooLong"));
  return isShort;
}

function focusQuestion() {
  // Where there is no mouse a keyboard would come up over the page.
  if (hasMouse.matches && !document.querySelector("dialog[open]")) question.focus({ preventScroll: true });
}

function fit() {
  question.style.height = "auto";
  question.style.height = `${question.scrollHeight}px`;
}

function openDrawer(isOpen) {
  const isDrawer = isNarrow.matches && isOpen;
  app.classList.toggle("has-drawer", isDrawer);
  column.inert = isDrawer;
  drawerButton.setAttribute("aria-expanded", String(isDrawer));
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  ask(question.value);
});
question.addEventListener("input", fit);
question.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  form.requestSubmit();
});
stop.addEventListener("click", () => {
  conversation.stop();
  question.focus();
});
actions.addEventListener("click", () => sidebar.menuFor(sidebar.find(session.id) ?? session, actions));
document.getElementById("new").addEventListener("click", () => {
  openDrawer(false);
  visit(null);
});
drawerButton.addEventListener("click", () => {
  openDrawer(true);
  document.getElementById("close-sidebar").focus();
});
for (const id of ["close-sidebar", "backdrop"]) {
  document.getElementById(id).addEventListener("click", () => {
    openDrawer(false);
    drawerButton.focus();
  });
}
isNarrow.addEventListener("change", () => openDrawer(false));

addEventListener("keydown", (event) => {
  if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey)) {
    event.preventDefault();
    openDrawer(true);
    document.getElementById("search").focus();
    return;
  }
  // A menu and a dialog close by themselves.
  if (event.key !== "Escape" || document.querySelector("dialog[open], [popover]:popover-open")) return;
  if (app.classList.contains("has-drawer")) {
    openDrawer(false);
    drawerButton.focus();
  } else if (conversation.isAnswering) conversation.stop();
  else sources.closeSources();
});
addEventListener("popstate", () => show(openId()));

for (const input of settings.querySelectorAll("input")) {
  const chosen = input.name === "theme" ? (page.dataset.theme ?? "system") : page.lang;
  input.checked = input.value === chosen;
  input.addEventListener("change", () => (input.name === "theme" ? chooseTheme(input.value) : chooseLanguage(input.value)));
}

function chooseTheme(theme) {
  if (theme === "system") delete page.dataset.theme;
  else page.dataset.theme = theme;
  keep("evi-theme", theme);
}

function chooseLanguage(language) {
  page.lang = language;
  keep("evi-language", language);
  translate();
  sidebar.redraw();
  // What is in the conversation was drawn in the other language.
  if (!conversation.isAnswering) show(conversation.sessionId, { takesFocus: false });
}

function keep(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It holds until the page is left.
  }
}

function translate() {
  translatePage();
  showExamples();
  const name = document.body.dataset.user;
  if (name) document.getElementById("signed-in").textContent = say("signedInAs", name);
}

const openId = () => new URLSearchParams(location.search).get("session");

translate();
sidebar.refresh().catch(report);
show(openId());
