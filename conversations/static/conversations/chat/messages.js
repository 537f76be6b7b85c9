// How one message looks: a question with its editor, an answer as it grows.

import { icon, iconButton, make } from "./dom.js";
import { renderMarkdown } from "./markdown.js";
import { say } from "./strings.js";

export class Question {
  constructor(text, { onEdit }) {
    this.text = text;
    this.onEdit = onEdit;
    this.node = make("li", { class: "message question" });
    this.#show();
  }

  /** Only a thread that nobody is answering right now can be changed. */
  allowChanges(isAllowed) {
    for (const button of this.node.querySelectorAll(".message-actions button")) button.disabled = !isAllowed;
  }

  #show() {
    this.node.replaceChildren(
      make("h2", { class: "unseen" }, say("you")),
      make("p", { class: "bubble" }, this.text),
      make("p", { class: "message-actions" }, iconButton("edit", say("edit"), () => this.#edit())),
    );
  }

  #edit() {
    const field = make("textarea", { "aria-label": say("edit"), rows: Math.min(this.text.split("\n").length + 1, 10) });
    field.value = this.text;
    const leave = () => {
      this.#show();
      this.node.querySelector("button").focus();
    };
    const form = make(
      "form",
      {
        class: "editor",
        onsubmit: (event) => {
          event.preventDefault();
          if (field.value.trim()) this.onEdit(this, field.value.trim());
        },
        onkeydown: (event) => {
          if (event.key === "Escape") {
            event.stopPropagation();
            leave();
          } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
            event.preventDefault();
            form.requestSubmit();
          }
        },
      },
      field,
      make("p", { class: "note" }, say("editHint")),
      make(
        "p",
        { class: "buttons" },
        make("button", { type: "button", class: "button", onclick: leave }, say("cancel")),
        make("button", { type: "submit", class: "button primary" }, say("ask")),
      ),
    );
    this.node.replaceChildren(make("h2", { class: "unseen" }, say("you")), form);
    field.focus();
    field.setSelectionRange(field.value.length, field.value.length);
  }
}

export class Answer {
  #drawn = 0;
  #knownSources = 0;

  constructor({ onSources, onRegenerate }) {
    this.onSources = onSources;
    this.onRegenerate = onRegenerate;
    this.text = "";
    this.citations = [];
    this.body = make("div", { class: "prose" });
    this.doing = make("p", { class: "doing", hidden: true });
    this.note = make("p", { class: "note", hidden: true });
    this.actions = make("p", { class: "message-actions", hidden: true });
    this.node = make(
      "li",
      { class: "message answer" },
      make("h2", { class: "unseen" }, say("evi")),
      this.doing,
      this.body,
      this.note,
      this.actions,
    );
  }

  /** What EVI is doing while there is nothing to read; an empty text when there is. */
  showDoing(text) {
    this.doing.hidden = !text;
    this.doing.replaceChildren(make("span", { class: "spinner", "aria-hidden": "true" }), text);
  }

  /** What is there so far, drawn at most once a frame. */
  grow(text, citations, afterwards = () => {}) {
    this.text = text;
    this.citations = citations;
    this.#drawn ||= requestAnimationFrame(() => {
      this.#drawn = 0;
      this.#draw();
      afterwards();
    });
  }

  finish({ text, citations, status = "complete", problem = "" }) {
    cancelAnimationFrame(this.#drawn);
    this.#drawn = 0;
    this.text = text;
    this.citations = citations;
    this.node.setAttribute("aria-busy", "false");
    this.showDoing("");
    this.#draw();
    const note = problem || (status === "interrupted" ? say("interrupted") : text ? "" : say("failed"));
    this.note.textContent = note;
    this.note.hidden = !note;
    this.note.classList.toggle("problem", Boolean(problem));
    this.#showActions();
  }

  allowChanges(isAllowed) {
    const button = this.actions.querySelector(".regenerate");
    if (button) button.disabled = !isAllowed;
  }

  #draw() {
    const cite = (number) => this.#chip(number);
    // A chip that was drawn before its source was known gets its name now.
    renderMarkdown(this.body, this.text, { cite, anew: this.#knownSources !== this.citations.length });
    this.#knownSources = this.citations.length;
  }

  #chip(number) {
    const cited = this.citations.find((each) => each.marker === number);
    const label = cited ? say("source", number, cited.document_title ?? "") : say("unknownSource", number);
    const open = (event) => this.onSources(this, number, event.currentTarget);
    return make("button", { type: "button", class: "chip", "aria-label": label, title: label, disabled: !cited, onclick: open }, String(number));
  }

  #showActions() {
    const count = this.citations.length;
    const open = (event) => this.onSources(this, null, event.currentTarget);
    this.actions.replaceChildren(
      ...(count ? [make("button", { type: "button", class: "text-button source-count", onclick: open }, icon("book"), say("sourceCount", count))] : []),
      ...(this.text ? [iconButton("copy", say("copy"), (event) => this.#copy(event.currentTarget))] : []),
      iconButton("again", say("regenerate"), () => this.onRegenerate(this), { class: "icon-button regenerate" }),
    );
    this.actions.hidden = false;
  }

  async #copy(button) {
    try {
      await navigator.clipboard.writeText(this.text);
    } catch {
      // The clipboard is there for pages over HTTPS only, and may be refused.
      return;
    }
    button.replaceChildren(icon("check"));
    button.setAttribute("aria-label", say("copied"));
    setTimeout(() => {
      button.replaceChildren(icon("copy"));
      button.setAttribute("aria-label", say("copy"));
    }, 2_000);
  }
}
