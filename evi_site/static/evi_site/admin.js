"use strict";

// Scroll positions and focus stay with what the reader was looking at: earlier messages are put above it.
async function showEarlier(link) {
  const place = link.parentElement;
  link.setAttribute("aria-busy", "true");
  const response = await fetch(link.href, { headers: { "X-Requested-With": "fetch" } });
  if (!response.ok) {
    location.reload();
    return;
  }
  const template = document.createElement("template");
  template.innerHTML = await response.text();
  const below = document.documentElement.scrollHeight - window.scrollY;
  const first = template.content.querySelector(".evi-message");
  place.replaceWith(template.content);
  window.scrollTo(0, document.documentElement.scrollHeight - below);
  if (first) {
    first.tabIndex = -1;
    first.focus({ preventScroll: true });
  }
}

async function followCleanup(panel) {
  const told = panel.querySelector("[data-told]");
  const bar = panel.querySelector("progress");
  while (panel.dataset.finished !== "yes") {
    await new Promise((resolve) => setTimeout(resolve, 700));
    try {
      const progress = await (await fetch(panel.dataset.cleanup)).json();
      if (told.textContent !== progress.told) told.textContent = progress.told;
      bar.value = progress.percent;
      panel.dataset.finished = progress.finished ? "yes" : "no";
      panel.querySelector("[data-until-finished]").hidden = progress.finished;
    } catch {
      // A server that starts again answers in a moment.
    }
  }
}

const MOUSE_ONLY = "a[x-on\\:click]:not([href]), span[x-on\\:click], div[x-on\\:click^=openUserLinks]";
// What Unfold's icons and menus are called; the rest says it in words.
const NAMES = {
  sidebar: "Menu tonen of verbergen",
  openUserLinks: "Account",
  openTheme: "Weergave kiezen",
  showPassword: "Wachtwoord tonen of verbergen",
  openRelatedWidgetWrapper: "Meer",
};

/** Unfold opens its menu, the filters and the account with what only a mouse can reach. */
function makeButton(part) {
  const does = part.getAttribute("x-on:click");
  const name = Object.keys(NAMES).find((each) => does.startsWith(each));
  part.tabIndex = 0;
  part.setAttribute("role", "button");
  if (name) part.setAttribute("aria-label", NAMES[name]);
  part.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    part.click();
  });
}

/** An icon is a word in a font of pictures, and is not read out beside the words that say the same. */
function hush(icon) {
  const does = icon.closest("a, button");
  const isAlone = does && does.textContent.trim() === icon.textContent.trim() && !does.ariaLabel && !does.title;
  if (!isAlone) icon.setAttribute("aria-hidden", "true");
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-earlier]");
  if (link && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    showEarlier(link);
  }
});

document.addEventListener("DOMContentLoaded", () => {
  // On a phone each cell bears its column's name, which Unfold writes With Capitals.
  for (const cell of document.querySelectorAll("[data-label]")) {
    const label = cell.dataset.label.trim();
    cell.dataset.label = label.charAt(0).toUpperCase() + label.slice(1);
  }
  document.querySelectorAll("[data-cleanup]").forEach(followCleanup);
  for (const part of document.querySelectorAll("[data-simplebar]")) {
    part.dataset.simplebarAriaLabel = part.id.startsWith("nav-") ? "Menu" : "Lijst";
  }
  document.getElementById("main")?.setAttribute("role", "main");
  document.querySelectorAll(MOUSE_ONLY).forEach(makeButton);
  document.getElementById("searchbar-submit")?.setAttribute("aria-label", "Zoeken");
  document.querySelectorAll(".material-symbols-outlined:not([role])").forEach(hush);
  // The two parts of a moment have a name each, which Unfold writes beside them and not in a label.
  for (const part of document.querySelectorAll(".vDateField, .vTimeField")) {
    if (!part.labels.length) part.setAttribute("aria-label", part.classList.contains("vDateField") ? "Datum" : "Tijd");
  }
});

window.addEventListener("load", () => {
  // What one types in to choose from many gets the name of what is chosen.
  for (const field of document.querySelectorAll(".select2-search__field")) {
    const chosen = field.closest(".select2")?.previousElementSibling;
    field.setAttribute("aria-label", chosen?.labels?.[0]?.textContent.trim() || "Zoeken");
  }
});
