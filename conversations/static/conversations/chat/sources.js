// The panel beside the conversation that shows what an answer cites.

import { readSource } from "./api.js";
import { icon, link, make, safeAddress } from "./dom.js";
import { language, say } from "./strings.js";

const panel = document.getElementById("sources");
const list = document.getElementById("source-list");
let opener = null;

const percent = (similarity) =>
  new Intl.NumberFormat(language(), { style: "percent", maximumFractionDigits: 0 }).format(similarity);

export const isOpen = () => !panel.hidden;

/** Show the sources of an answer, with one of them in view; focus comes back to `from` when the panel closes. */
export function openSources(citations, { marker = null, from = null } = {}) {
  opener = from;
  list.replaceChildren(...citations.map((citation) => card(citation, citation.marker === marker)));
  panel.hidden = false;
  document.body.classList.add("has-sources");
  // The conversation becomes narrower, and its lines move.
  from?.scrollIntoView({ block: "nearest" });
  const chosen = list.querySelector("[aria-current]");
  chosen?.scrollIntoView({ block: "nearest" });
  (chosen ?? panel.querySelector("button")).focus({ preventScroll: true });
}

export function closeSources({ giveFocusBack = true } = {}) {
  if (panel.hidden) return;
  panel.hidden = true;
  document.body.classList.remove("has-sources");
  if (giveFocusBack && opener?.isConnected) opener.focus();
  opener = null;
}

function card(citation, isChosen) {
  const { marker, document_title: title = "", section, category, norm, version, excerpt = "", similarity, url, chunk_id } = citation;
  const text = make("p", { class: "excerpt" }, excerpt);
  const facts = [norm && [say("norm"), norm], version && [say("version"), version]].filter(Boolean);
  const whole = chunk_id && make("button", { type: "button", class: "text-button", onclick: () => readWhole(chunk_id, text, whole) }, say("wholeText"));
  return make(
    "li",
    { class: "source", tabindex: "-1", "aria-current": isChosen ? "true" : null },
    make("h3", {}, make("span", { class: "number" }, String(marker)), title),
    (section || category) && make("p", { class: "section" }, section || category),
    text,
    facts.length > 0 && make("dl", {}, ...facts.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)])),
    typeof similarity === "number" && score(similarity),
    make("p", { class: "source-actions" }, whole, url && safeAddress(url) && link(url, say("openSource"), icon("out"))),
  );
}

function score(similarity) {
  const value = Math.min(Math.max(similarity, 0), 1);
  return make(
    "p",
    { class: "score" },
    make("span", {}, say("similarity")),
    make("meter", { min: 0, max: 1, value, "aria-label": say("similarity") }),
    make("span", {}, percent(value)),
  );
}

async function readWhole(id, text, button) {
  button.disabled = true;
  try {
    const source = await readSource(id);
    text.textContent = source.text;
    text.classList.add("whole");
    if (!source.is_current) text.after(make("p", { class: "note" }, say("retired")));
    button.remove();
  } catch {
    button.disabled = false;
  }
}

document.getElementById("close-sources").addEventListener("click", () => closeSources());
