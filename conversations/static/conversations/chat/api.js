// EVI's REST surface, as far as the page uses it.

export class Refusal extends Error {
  constructor(status, code = "") {
    super(`${status} ${code}`);
    this.status = status;
    this.code = code;
  }
}

const cookie = (name) => document.cookie.split("; ").find((each) => each.startsWith(`${name}=`))?.slice(name.length + 1);

async function call(path, { method = "GET", body } = {}) {
  const headers = { Accept: "application/json" };
  if (method !== "GET") headers["X-CSRFToken"] = cookie("csrftoken") ?? "";
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refusal(0, "offline");
  }
  if (answer.status === 401) {
    // Whoever signed out elsewhere comes back here after signing in.
    location.assign(`/login/?next=${encodeURIComponent(location.pathname + location.search)}`);
  }
  if (!answer.ok) throw new Refusal(answer.status);
  return answer.status === 204 ? null : answer.json();
}

const query = (fields) => new URLSearchParams(Object.entries(fields).filter(([, value]) => value)).toString();
const sessionPath = (id) => `/api/sessions/${encodeURIComponent(id)}`;

export const listSessions = (fields = {}) => call(`/api/sessions?${query(fields)}`);
export const readSession = (id) => call(sessionPath(id));
export const readMessages = (id, fields = {}) => call(`${sessionPath(id)}/messages?${query(fields)}`);
export const changeSession = (id, body) => call(sessionPath(id), { method: "PATCH", body });
export const deleteSession = (id) => call(sessionPath(id), { method: "DELETE" });
export const search = (text) => call(`/api/search?${query({ q: text, limit: 10 })}`);
export const readSource = (id) => call(`/api/sources/${encodeURIComponent(id)}`);
export const exportPath = (id, format) => `${sessionPath(id)}/export?${query({ format })}`;

/** Where the next page of a list begins. Its address may name a host that a browser does not reach. */
export const cursorOf = (page) => (page.next ? new URL(page.next, location.origin).searchParams.get("cursor") : null);
