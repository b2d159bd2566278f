// Formatting of values, and helpers that touch the document only where something has changed.

export const $ = (id) => document.getElementById(id);

// A number with a unit prefix; a dash if it is unknown.
export function count(n) {
  if (n === null || n === undefined || !Number.isFinite(n)) return "–";
  const a = Math.abs(n);
  if (a >= 1e9) return (n / 1e9).toFixed(2) + " G";
  if (a >= 1e6) return (n / 1e6).toFixed(2) + " M";
  if (a >= 1e4) return Number((n / 1e3).toFixed(1)) + " k";
  if (a >= 100 || Number.isInteger(n)) return n.toFixed(0);
  if (a >= 1) return n.toFixed(1);
  return a === 0 ? "0" : n.toPrecision(2);
}
// A score with two decimals, as in the other reports.
export const score = (n) => (Number.isFinite(n) ? (Math.abs(n) >= 1e5 ? count(n) : n.toFixed(2)) : "–");
export const percent = (share) => (Number.isFinite(share) ? (100 * share).toFixed(0) + " %" : "–");
export function span(s) {
  if (!Number.isFinite(s)) return "–";
  if (s < 10) return s.toFixed(1) + " s";
  const t = Math.round(s);
  if (t < 60) return t + " s";
  if (t < 3600) return `${Math.floor(t / 60)} min ${String(t % 60).padStart(2, "0")} s`;
  if (t < 172800) return `${Math.floor(t / 3600)} h ${String(Math.floor(t / 60) % 60).padStart(2, "0")} min`;
  return `${Math.floor(t / 86400)} days`;
}
export function bytes(n) {
  if (n < 1e3) return n + " B";
  return n < 1e6 ? (n / 1e3).toFixed(1) + " kB" : (n / 1e6).toFixed(1) + " MB";
}

export function text(element, value) {
  if (element.textContent !== value) element.textContent = value;
}
export function shown(element, is) {
  if (element.hidden === is) element.hidden = !is;
}
export function attribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}
// A new element: make("td", {class: "n"}, "12", child ...).
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children);
  return element;
}
// Gives `parent` one child per item; children are reused between updates by key.
export function keyed(parent, items, keyOf, create, update) {
  const old = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  let place = parent.firstElementChild;
  for (const item of items) {
    const key = String(keyOf(item));
    let child = old.get(key);
    if (child) {
      old.delete(key);
    } else {
      child = create(item);
      child.dataset.key = key;
    }
    if (child === place) {
      place = place.nextElementSibling;
    } else {
      parent.insertBefore(child, place);
    }
    update(child, item);
  }
  for (const child of old.values()) child.remove();
}
// Sets the options of a select and keeps the selection.
export function options(select, values, labels = values) {
  const now = [...select.options].map((o) => o.value + "\n" + o.label).join("\n");
  if (now === values.map((v, i) => v + "\n" + labels[i]).join("\n")) return;
  const chosen = select.value;
  select.replaceChildren(...values.map((v, i) => make("option", {value: v}, labels[i])));
  if (values.includes(chosen)) select.value = chosen;
}
export const color = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();
export const series = (i) => color("c" + (1 + (i % 8)));
