// A conversation as staff read it: answers with the headings, lists and tables that their Markdown means. Without this
// they stand there as they were said.

import { renderMarkdown } from "./chat/markdown.js";

const conversation = document.querySelector(".evi-conversation");

function read() {
  for (const text of conversation.querySelectorAll(".evi-message.assistant[id] > .evi-text:not([data-read])")) {
    text.dataset.read = "";
    renderMarkdown(text, text.textContent);
  }
}

if (conversation) {
  read();
  // Earlier messages that are asked for, and later ones that come in.
  new MutationObserver(read).observe(conversation, { childList: true, subtree: true });
}
