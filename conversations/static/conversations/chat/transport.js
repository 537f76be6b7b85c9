// Questions and answers over ws/chat/. A turn survives a lost connection: the same id takes it up where it was.

const FIRST_PAUSE_MS = 400;
const LONGEST_PAUSE_MS = 8_000;
// How long a question may stay without any reply before the connection is taken for dead.
const PATIENCE_MS = 20_000;
const TOO_LARGE = 1009;

/** A UUID of version 4; the browser's own is only there for pages over HTTPS. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  bytes[6] = (bytes[6] & 0x0f) | 0x40;
  bytes[8] = (bytes[8] & 0x3f) | 0x80;
  const hex = [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  return hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

export class Transport {
  #socket = null;
  #turns = new Map();
  #pause = FIRST_PAUSE_MS;
  #timer = 0;
  #wasLost = false;

  /** `onConnection` is told "lost" and "back"; `mayConnect` is asked before the second try, and may lead elsewhere. */
  constructor({ onConnection, mayConnect }) {
    this.onConnection = onConnection;
    this.mayConnect = mayConnect;
    addEventListener("online", () => this.#turns.size && this.#connect());
  }

  /** Ask. `after`, if given, is the message that the question comes after, null for none. `listener` gets each frame. */
  ask({ sessionId = null, text, after }, listener) {
    return this.#begin({ id: newId(), sessionId, text, after, received: 0, isAsked: false, listener });
  }

  /** Take up a turn that began before this page was loaded. What it said is told from the beginning. */
  resume({ id, sessionId, text, after }, listener) {
    return this.#begin({ id, sessionId, text, after, received: 0, isAsked: true, listener });
  }

  cancel(id) {
    const turn = this.#turns.get(id);
    if (!turn) return;
    if (this.#isOpen) this.#send({ type: "cancel", id });
    // Without a connection nobody is there to say so; EVI ends a turn that nobody comes back to.
    else this.#receive({ type: "cancelled", id });
  }

  get #isOpen() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  #begin(turn) {
    this.#turns.set(turn.id, turn);
    if (this.#isOpen) this.#put(turn);
    else this.#connect();
    return turn.id;
  }

  #put(turn) {
    const { id, text, after, received, messageId } = turn;
    const session = turn.sessionId ? { session_id: turn.sessionId } : {};
    const place = after === undefined ? {} : { after };
    // Before EVI named the session there is nothing to resume: the same question with the same id is not asked twice.
    if (turn.isAsked && turn.sessionId) {
      this.#send({ type: "resume", id, text, received, ...(messageId ? { message_id: messageId } : {}), ...session, ...place });
    } else {
      this.#send({ type: "ask", id, text, ...session, ...place });
    }
    turn.isAsked = true;
    const socket = this.#socket;
    clearTimeout(turn.patience);
    turn.patience = setTimeout(() => socket === this.#socket && socket.close(), PATIENCE_MS);
  }

  #send(frame) {
    this.#socket.send(JSON.stringify(frame));
  }

  #connect() {
    clearTimeout(this.#timer);
    if (this.#socket && this.#socket.readyState <= WebSocket.OPEN) return;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/ws/chat/`);
    this.#socket = socket;
    socket.onopen = () => {
      if (this.#wasLost) this.onConnection("back");
      this.#wasLost = false;
      for (const turn of this.#turns.values()) this.#put(turn);
    };
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = ({ code }) => this.#lost(socket, code);
  }

  #lost(socket, code) {
    if (socket !== this.#socket) return;
    this.#socket = null;
    // The same again would end the same way.
    if (code === TOO_LARGE) for (const id of [...this.#turns.keys()]) this.#receive({ type: "error", id, status: 413 });
    if (!this.#turns.size) return;
    if (!this.#wasLost) this.onConnection("lost");
    this.#wasLost = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(async () => {
      if (await this.mayConnect()) this.#connect();
    }, this.#pause);
    this.#pause = Math.min(this.#pause * 2, LONGEST_PAUSE_MS);
  }

  #receive(frame) {
    // A refusal of the connection itself names no turn and means them all. After one that passes, it is tried again.
    const isFinal = frame.type === "error" && frame.status < 429;
    const turns = frame.id ? [this.#turns.get(frame.id)] : isFinal ? [...this.#turns.values()] : [];
    for (const turn of turns) {
      if (!turn) continue;
      clearTimeout(turn.patience);
      // A connection that opens and says nothing of the question is not worth hurrying for.
      this.#pause = FIRST_PAUSE_MS;
      if (frame.type === "start") {
        turn.sessionId = frame.session_id;
        turn.messageId = frame.message_id;
        // From where EVI goes on: from the beginning, when it is another answer than the one that broke off.
        turn.received = frame.received ?? turn.received;
        frame.received = turn.received;
      }
      // Counted as EVI counts, in characters and not in halves of them.
      if (frame.type === "delta") turn.received += [...frame.text].length;
      if (["done", "error", "cancelled"].includes(frame.type)) this.#turns.delete(turn.id);
      turn.listener({ ...frame, id: turn.id });
    }
  }
}
