// The only way in which this page makes elements. Text is always text: nothing here reads HTML.

const SVG = "http://www.w3.org/2000/svg";

/** An element with properties (functions for `on…`, booleans, or attributes) and children, strings among them. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const use = document.createElementNS(SVG, "use");
  use.setAttribute("href", `#icon-${name}`);
  svg.append(use);
  return svg;
}

/** A button that shows an icon alone; its name is what a screen reader says and a mouse is told. */
export function iconButton(name, label, onclick, properties = {}) {
  return make("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...properties }, icon(name));
}

/** An address that a link may have, or null. Only absolute ones of the web and of mail. */
export function safeAddress(text) {
  let address;
  try {
    address = new URL(text);
  } catch {
    return null;
  }
  return ["http:", "https:", "mailto:"].includes(address.protocol) ? address.href : null;
}

/** A link that leaves the page; only its text where the address is none to follow. */
export function link(address, ...children) {
  const href = safeAddress(address);
  if (href === null) return make("span", {}, ...children);
  return make("a", { href, target: "_blank", rel: "noopener noreferrer" }, ...children);
}
