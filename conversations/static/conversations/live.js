// What happens now, on the pages of staff: <ol id="conversation" data-live-session="…"> and <div id="now" data-live-now>.
// Text is only ever put in as text.
"use strict";

(() => {
  const FIRST_PAUSE = 500;
  const LONGEST_PAUSE = 30000;
  // Codes that trying again does not change: not allowed.
  const FINAL = [4403];
  // Nearer than this to the end of the page, the reader follows what is said.
  const NEAR_END = 200;
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  function element(name, { text, ...attributes } = {}, ...children) {
    const made = document.createElement(name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    if (text !== undefined) made.textContent = text;
    made.append(...children);
    return made;
  }

  function connect(path, { opened, heard, changed }) {
    let pause = FIRST_PAUSE;
    let socket = null;
    let leaving = false;
    function open() {
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      socket = new WebSocket(`${scheme}//${location.host}${path}`);
      socket.addEventListener("open", () => {
        pause = FIRST_PAUSE;
        changed(true);
        opened(socket);
      });
      socket.addEventListener("message", (event) => heard(JSON.parse(event.data), socket));
      socket.addEventListener("close", (event) => {
        changed(false);
        if (leaving || FINAL.includes(event.code)) return;
        // Not all at the same moment, when the server comes back.
        setTimeout(open, pause * (0.5 + Math.random()));
        pause = Math.min(2 * pause, LONGEST_PAUSE);
      });
    }
    window.addEventListener("pagehide", () => {
      leaving = true;
      socket.close();
    });
    window.addEventListener("pageshow", (event) => {
      if (event.persisted) {
        leaving = false;
        open();
      }
    });
    open();
  }

  function shownAt(iso) {
    return new Intl.DateTimeFormat(document.documentElement.lang || "nl", {
      dateStyle: "medium",
      timeStyle: "medium",
    }).format(new Date(iso));
  }

  function follow(change) {
    const page = document.documentElement;
    const near = page.scrollHeight - window.innerHeight - window.scrollY < NEAR_END;
    change();
    if (near) window.scrollTo({ top: page.scrollHeight, behavior: calm.matches ? "auto" : "smooth" });
  }

  function watchSession(list) {
    list.setAttribute("aria-live", "polite");
    list.setAttribute("aria-relevant", "additions");
    // Answers being said: what stands there, and how many characters it is by the server's count.
    const growing = new Map();

    function lastId() {
      const shown = document.querySelectorAll('[id^="message-"]');
      return shown.length ? shown[shown.length - 1].id.slice("message-".length) : "";
    }

    function article(role, label) {
      // As the page itself shows a message.
      const text = element("div", { class: "evi-text" });
      const header = element("p", { class: "evi-who" }, element("strong", { text: label }));
      const item = element("li", { class: `evi-message ${role}` }, header, text);
      list.querySelector(":scope > .evi-quiet")?.remove();
      list.append(item);
      return { item, header, text };
    }

    /** What is said anew, or left, is folded as the page itself folds it. */
    function fold(ids) {
      const items = ids.map((id) => document.getElementById(`message-${id}`)).filter((item) => item && !item.closest(".evi-superseded"));
      if (!items.length) return;
      const count = items.length;
      const summary = element("summary", { text: count === 1 ? "1 vervangen bericht" : `${count} vervangen berichten` });
      const folded = element("ol", { class: "evi-messages" });
      items[0].before(element("li", { class: "evi-superseded" }, element("details", {}, summary, folded)));
      folded.append(...items);
    }

    function addMessage(message) {
      growing.get(message.id)?.item.remove();
      growing.delete(message.id);
      fold(message.replaces);
      if (document.getElementById(`message-${message.id}`)) return;
      const { item, header, text } = article(message.role, message.role_label);
      item.id = `message-${message.id}`;
      header.append(" ", element("time", { datetime: message.created_at, text: shownAt(message.created_at) }));
      if (message.status !== "complete") {
        header.append(" ", element("span", { class: "evi-state evi-warn", text: message.status_label }));
      }
      text.textContent = message.content;
      if (message.citations.length) {
        const sources = message.citations.map((title) => element("li", { text: title }));
        const count = sources.length;
        const summary = element("summary", { text: count === 1 ? "1 bron" : `${count} bronnen` });
        item.append(element("details", { class: "evi-citations", open: "" }, summary, element("ul", {}, ...sources)));
      }
      if (message.about.length) {
        item.append(element("p", { class: "evi-meta" }, ...message.about.map((text) => element("span", { text }))));
      }
    }

    function addText({ answer_id: id, at, to, text }, socket) {
      let answer = growing.get(id);
      if (!answer) {
        answer = { ...article("assistant", "Assistent"), received: 0 };
        answer.item.classList.add("growing");
        // Read out when it is whole, and not piece by piece.
        answer.item.setAttribute("aria-busy", "true");
        answer.header.append(" ", element("span", { class: "evi-state", text: "antwoordt nu …" }));
        growing.set(id, answer);
      }
      if (at === 0) answer.text.textContent = text;
      else if (at === answer.received) answer.text.append(text);
      else {
        socket.send("again");
        return;
      }
      answer.received = to;
    }

    connect(`/ws/admin/sessions/${encodeURIComponent(list.dataset.liveSession)}/`, {
      opened: (socket) => socket.send(lastId()),
      changed: (isConnected) => {
        list.dataset.liveState = isConnected ? "connected" : "away";
        if (isConnected) return;
        // How far they are by now is told again.
        for (const answer of growing.values()) answer.item.remove();
        growing.clear();
      },
      heard: (frame, socket) => {
        if (frame.type === "message") follow(() => addMessage(frame.message));
        if (frame.type === "text") follow(() => addText(frame, socket));
        if (frame.type === "end") {
          growing.get(frame.answer_id)?.item.remove();
          growing.delete(frame.answer_id);
        }
      },
    });
  }

  function watchNow(place) {
    const rows = element("tbody");
    const heads = ["Sinds", "Kanaal", "Persoon", "Model", "Tekens"].map((text) => element("th", { scope: "col", text }));
    const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), rows);
    const state = element("p", { "aria-live": "polite" });
    place.replaceChildren(state, table);
    table.hidden = true;
    let turns = [];

    function show() {
      rows.replaceChildren(
        ...turns.map((turn) => {
          const seconds = Math.max(0, Math.round((Date.now() - new Date(turn.since)) / 1000));
          const since = element("td");
          // Where sessions are found, as the page itself says.
          if (turn.session_id && place.dataset.liveNow) {
            const address = place.dataset.liveNow.replace("SESSION", turn.session_id);
            since.append(element("a", { href: address, text: `${seconds} s` }));
          } else {
            since.textContent = `${seconds} s`;
          }
          const others = [turn.channel, turn.person ?? "verborgen", turn.model, turn.characters];
          return element("tr", {}, since, ...others.map((text) => element("td", { text: String(text) })));
        }),
      );
      table.hidden = !turns.length;
    }

    setInterval(() => turns.length && show(), 1000);
    connect("/ws/admin/now/", {
      opened: () => {},
      changed: (isConnected) => {
        place.dataset.liveState = isConnected ? "connected" : "away";
        turns = [];
        show();
        state.textContent = isConnected ? "Nu geen antwoorden onderweg." : "Geen verbinding; wordt opnieuw geprobeerd.";
      },
      heard: (frame) => {
        turns = frame.turns;
        show();
        const count = turns.length;
        const said = count ? `Nu ${count === 1 ? "één antwoord" : `${count} antwoorden`} onderweg.` : "Nu geen antwoorden onderweg.";
        // The same again is not news.
        if (state.textContent !== said) state.textContent = said;
      },
    });
  }

  const conversation = document.querySelector("#conversation[data-live-session]");
  if (conversation) watchSession(conversation);
  const now = document.querySelector("#now[data-live-now]");
  if (now) watchNow(now);
})();
