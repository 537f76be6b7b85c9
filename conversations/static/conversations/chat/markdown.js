// Markdown to DOM nodes, by construction: every piece of text ends in a text node, so nothing can become markup.
// What is not finished yet, as while an answer streams, is shown as the text it is.

import { link, make } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)/;
const HEADING = /^ {0,3}(#{1,6})\s+(.*?)(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(\s+|$)/;
const DIVIDER = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*\|?\s*$/;
const DEEPEST = 6;

const LINK = /!?\[([^[\]\n]{1,500})\]\(\s*<?((?:[^\s()<>]|\([^\s()<>]{0,200}\)){1,2000})>?(?:\s+"[^"\n]{0,300}")?\s*\)/y;
const MARKER = /\[(\d{1,2})\](?!\()/y;
const ADDRESS = /https?:\/\/[^\s<>"'`]{1,2000}/iy;
const BRACKETED = /<((?:https?:\/\/|mailto:)[^\s<>]{1,2000})>/iy;
const CODE = /(`{1,8})(?!`)([^`]|[^`][\s\S]{0,2000}?[^`])\1(?!`)/y;
const ESCAPABLE = /[!-/:-@[-`{-~]/;

const shown = new WeakMap();

/** Show `text` in `container`. Blocks that are the same as before stay as they are, and with them what is selected. */
export function renderMarkdown(container, text, { cite = null, anew = false } = {}) {
  const before = anew ? [] : (shown.get(container) ?? []);
  const blocks = blocksOf(text.replace(/\r\n?/g, "\n").split("\n"));
  const sources = blocks.map((block) => block.source);
  let same = 0;
  while (same < before.length && before[same] === sources[same]) same += 1;
  while (container.childNodes.length > same) container.lastChild.remove();
  for (const block of blocks.slice(same)) container.append(nodeOf(block, cite, 0));
  shown.set(container, sources);
}

/** The text without its marks, for a screen reader to read out at once. */
export function plainText(text) {
  const holder = make("div");
  renderMarkdown(holder, text.replace(/\[\d{1,2}\](?!\()/g, ""));
  return holder.textContent;
}

function blocksOf(lines) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (!lines[at].trim()) {
      at += 1;
      continue;
    }
    const [block, end] = blockAt(lines, at);
    blocks.push({ ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return blocks;
}

function blockAt(lines, at) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return fencedAt(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{ kind: "heading", level: heading[1].length, text: heading[2] }, at + 1];
  if (RULE.test(line)) return [{ kind: "rule" }, at + 1];
  if (QUOTE.test(line)) {
    const end = endOf(lines, at, (each) => QUOTE.test(each));
    return [{ kind: "quote", lines: lines.slice(at, end).map((each) => each.replace(QUOTE, "")) }, end];
  }
  if (ITEM.test(line)) return listAt(lines, at);
  if (beginsTable(lines, at)) {
    const end = endOf(lines, at, (each) => each.includes("|"));
    return [{ kind: "table", lines: lines.slice(at, end) }, end];
  }
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && !interrupts(lines, end)) end += 1;
  return [{ kind: "paragraph", text: lines.slice(at, end).join("\n") }, end];
}

function endOf(lines, at, belongs) {
  let end = at;
  while (end < lines.length && lines[end].trim() && belongs(lines[end])) end += 1;
  return end;
}

function interrupts(lines, at) {
  const line = lines[at];
  return [FENCE, HEADING, RULE, QUOTE, ITEM].some((pattern) => pattern.test(line)) || beginsTable(lines, at);
}

function beginsTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") && DIVIDER.test(lines[at + 1]);
}

function fencedAt(lines, at, [, mark, language]) {
  let end = at + 1;
  const closes = (line) => line.trim().startsWith(mark) && !line.trim().replaceAll(mark[0], "");
  while (end < lines.length && !closes(lines[end])) end += 1;
  return [{ kind: "code", language, text: lines.slice(at + 1, end).join("\n") }, Math.min(end + 1, lines.length)];
}

function listAt(lines, at) {
  const [, indent, mark] = ITEM.exec(lines[at]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const line = lines[end];
    const item = ITEM.exec(line);
    const isNext = item && item[1].length < indent.length + 2 && /\d/.test(item[2]) === isOrdered && !RULE.test(line);
    if (isNext) {
      items.push([line.slice(item[0].length)]);
    } else if (!line.trim()) {
      const next = lines.slice(end + 1).findIndex((each) => each.trim());
      if (next < 0 || !continues(lines[end + 1 + next], indent.length, isOrdered)) break;
      items.at(-1).push("");
    } else if (/^ {2,}/.test(line.slice(indent.length)) && line.slice(0, indent.length).trim() === "") {
      items.at(-1).push(line.slice(indent.length).replace(/^ {2,3}/, ""));
    } else if (!lines[end - 1].trim() || interrupts(lines, end)) {
      break;
    } else {
      items.at(-1).push(line);
    }
    end += 1;
  }
  return [{ kind: "list", isOrdered, start: Number.parseInt(mark, 10) || 1, items }, end];
}

function continues(line, indent, isOrdered) {
  const item = ITEM.exec(line);
  if (item && item[1].length < indent + 2) return /\d/.test(item[2]) === isOrdered;
  return /^ {2,}/.test(line.slice(indent));
}

function nodeOf(block, cite, depth) {
  switch (block.kind) {
    case "heading":
      // The page has its own first two levels.
      return make(`h${Math.min(block.level + 2, 6)}`, {}, ...inline(block.text, cite));
    case "rule":
      return make("hr");
    case "code":
      return make("pre", { tabindex: "0" }, make("code", {}, block.text));
    case "quote":
      return make("blockquote", {}, ...childrenOf(block.lines, cite, depth));
    case "list":
      return listNode(block, cite, depth);
    case "table":
      return tableNode(block.lines, cite);
    default:
      return make("p", {}, ...inline(block.text, cite));
  }
}

function childrenOf(lines, cite, depth) {
  if (depth >= DEEPEST) return [lines.join("\n")];
  return blocksOf(lines).map((block) => nodeOf(block, cite, depth + 1));
}

function listNode(block, cite, depth) {
  const items = block.items.map((lines) => {
    const children = childrenOf(lines, cite, depth);
    // One that holds a single paragraph is set close.
    const [first] = children;
    if (first instanceof Element && first.tagName === "P" && !children.some((each, place) => place && each.tagName === "P")) {
      first.replaceWith(...first.childNodes);
      return make("li", {}, ...first.childNodes, ...children.slice(1));
    }
    return make("li", {}, ...children);
  });
  return block.isOrdered ? make("ol", { start: block.start }, ...items) : make("ul", {}, ...items);
}

function tableNode([head, divider, ...rows], cite) {
  const sides = cellsOf(divider).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : null));
  const row = (line, name) =>
    make(
      "tr",
      {},
      ...cellsOf(line)
        .slice(0, sides.length)
        .map((cell, place) => make(name, { class: sides[place], scope: name === "th" ? "col" : null }, ...inline(cell, cite))),
    );
  const table = make("table", {}, make("thead", {}, row(head, "th")), make("tbody", {}, ...rows.map((line) => row(line, "td"))));
  return make("div", { class: "table", tabindex: "0" }, table);
}

function cellsOf(line) {
  const cells = line.trim().replace(/^\|/, "").replace(/\|$/, "").split(/(?<!\\)\|/);
  return cells.map((cell) => cell.trim().replaceAll("\\|", "|"));
}

/** The nodes of a piece of running text. */
function inline(text, cite, depth = 0) {
  if (depth > DEEPEST) return [text];
  const nodes = [];
  // Of a mark that is not closed from one place on, nothing later is closed either: looked for once, not at each place.
  const unclosed = new Set();
  let plain = "";
  let at = 0;
  const add = (node, length) => {
    if (plain) nodes.push(plain);
    plain = "";
    nodes.push(node);
    at += length;
  };
  while (at < text.length) {
    const character = text[at];
    const found = matchAt(text, at, character);
    if (found) {
      const node = found.make(cite, depth);
      add(node, found.length);
      continue;
    }
    if (character === "\\" && ESCAPABLE.test(text[at + 1] ?? "")) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (character === "\n") {
      plain = plain.replace(/ +$/, "");
      add(make("br"), 1);
      continue;
    }
    const mark = emphasisAt(text, at, unclosed);
    if (mark) {
      add(make(mark.name, {}, ...inline(text.slice(at + mark.width, mark.end), cite, depth + 1)), mark.end + mark.width - at);
      continue;
    }
    plain += character;
    at += 1;
  }
  if (plain) nodes.push(plain);
  return nodes;
}

function matchAt(text, at, character) {
  const match = (pattern) => {
    pattern.lastIndex = at;
    return pattern.exec(text);
  };
  if (character === "`") {
    const code = match(CODE);
    if (code) return { length: code[0].length, make: () => make("code", {}, code[2].replace(/^ (.*\S.*) $/s, "$1")) };
  }
  if (character === "[" || (character === "!" && text[at + 1] === "[")) {
    // An image is not loaded: who wants to see it follows the link.
    const linked = match(LINK);
    if (linked) return { length: linked[0].length, make: (cite, depth) => link(linked[2], ...inline(linked[1], null, depth + 1)) };
    const marker = match(MARKER);
    if (marker) return { length: marker[0].length, make: (cite) => cite?.(Number(marker[1])) ?? document.createTextNode(marker[0]) };
  }
  if (character === "<") {
    const bracketed = match(BRACKETED);
    if (bracketed) return { length: bracketed[0].length, make: () => link(bracketed[1], bracketed[1]) };
  }
  if ((character === "h" || character === "H") && !/\w/.test(text[at - 1] ?? "")) {
    const address = match(ADDRESS);
    if (address) {
      let bare = address[0].replace(/[.,;:!?*_~\]]+$/, "");
      if (bare.endsWith(")") && !bare.includes("(")) bare = bare.replace(/\)[.,;:!?)]*$/, "");
      return { length: bare.length, make: () => link(bare, bare) };
    }
  }
  return null;
}

function emphasisAt(text, at, unclosed) {
  const character = text[at];
  if (!"*_~".includes(character)) return null;
  const isDouble = text[at + 1] === character;
  if (character === "~" && !isDouble) return null;
  const mark = isDouble ? character + character : character;
  if (unclosed.has(mark) || /^\s?$/.test(text[at + mark.length] ?? "")) return null;
  if (character === "_" && /\w/.test(text[at - 1] ?? "")) return null;
  let end = at + mark.length;
  while ((end = text.indexOf(mark, end + 1)) >= 0) {
    // Of three marks in a row, the last closes what was opened first.
    if (mark.length === 2 && text[end + 2] === character) end += 1;
    if (mark.length === 1 && text[end + 1] === character) {
      end += 1;
      continue;
    }
    const closes = !/\s/.test(text[end - 1]) && !(character === "_" && /\w/.test(text[end + mark.length] ?? ""));
    if (closes) return { name: character === "~" ? "del" : isDouble ? "strong" : "em", width: mark.length, end };
  }
  unclosed.add(mark);
  return null;
}
