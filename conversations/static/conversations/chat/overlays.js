// What lies over the page for a moment: a menu, a question, a word in passing.

import { icon, make } from "./dom.js";

const menu = document.getElementById("menu");
const confirm = document.getElementById("confirm");
const rename = document.getElementById("rename");
const toast = document.getElementById("toast");
const TOAST_MS = 6_000;
let toastTimer = 0;
let standing = "";

/** A menu below its button. Arrow keys walk through it, Escape gives the focus back. */
export function openMenu(anchor, entries) {
  menu.replaceChildren(...entries.map((entry) => item(entry, anchor)));
  menu.setAttribute("aria-label", anchor.getAttribute("aria-label"));
  // Beside its button it belongs to the same part of the page, for who hears the page by its parts.
  anchor.closest("nav, main").append(menu);
  menu.showPopover();
  const { bottom, right, top } = anchor.getBoundingClientRect();
  const { offsetWidth: width, offsetHeight: height } = menu;
  const isRoomBelow = bottom + height + 8 < innerHeight;
  menu.style.left = `${Math.max(8, Math.min(right - width, innerWidth - width - 8))}px`;
  menu.style.top = `${isRoomBelow ? bottom + 4 : Math.max(8, top - height - 4)}px`;
  menu.firstElementChild.focus();
  anchor.setAttribute("aria-expanded", "true");
  menu.addEventListener("toggle", () => anchor.setAttribute("aria-expanded", "false"), { once: true });
}

function item({ icon: name, text, run, href, danger }, anchor) {
  const onclick = () => {
    menu.hidePopover();
    if (run) run();
    else anchor.focus();
  };
  const properties = { role: "menuitem", tabindex: "-1", class: danger ? "danger" : null, onclick };
  if (href) return make("a", { ...properties, href, download: "" }, icon(name), text);
  return make("button", { type: "button", ...properties }, icon(name), text);
}

menu.addEventListener("keydown", (event) => {
  const items = [...menu.children];
  const place = items.indexOf(document.activeElement);
  const next = { ArrowDown: place + 1, ArrowUp: place - 1 + items.length, Home: 0, End: items.length - 1 }[event.key];
  if (next !== undefined) {
    event.preventDefault();
    items[next % items.length].focus();
  } else if (event.key === "Tab") {
    menu.hidePopover();
  }
});

/** Whether a person is sure. */
export function confirmed({ question, warning, action }) {
  confirm.querySelector("h2").textContent = question;
  confirm.querySelector("p").textContent = warning;
  confirm.querySelector("[value=yes]").textContent = action;
  return answered(confirm);
}

/** The title that a person gives instead of this one; empty if they do not. */
export async function newTitle(title) {
  const field = rename.querySelector("input");
  field.value = title;
  const isGiven = answered(rename);
  field.select();
  return (await isGiven) ? field.value.trim() : "";
}

function answered(dialog) {
  dialog.returnValue = "no";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "yes"), { once: true });
  });
}

for (const dialog of [confirm, rename]) {
  dialog.querySelector("[value=no]").addEventListener("click", () => dialog.close("no"));
}

/** A word in passing, seen and heard; what stays comes back after it. */
export function tell(text) {
  show(text);
  toastTimer = setTimeout(() => show(standing), TOAST_MS);
}

/** What holds until something else does; an empty text when nothing does any more. */
export function tellUntilChanged(text) {
  standing = text;
  show(text);
}

function show(text) {
  clearTimeout(toastTimer);
  toast.textContent = text;
  toast.classList.toggle("shown", Boolean(text));
}
