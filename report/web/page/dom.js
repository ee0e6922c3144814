// What comes from the cluster gets into the page as text alone: nothing here makes markup of a string.

// el makes an element. A function is a listener for the event of its name; null, undefined and false leave an attribute out.
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === 'function') element.addEventListener(key, value);
    else if (value === true) element.setAttribute(key, '');
    else if (value !== null && value !== undefined && value !== false) element.setAttribute(key, value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false && child !== ''));
  return element;
}

// Characters that change the direction of text, or are invisible, are shown by their numbers: a name must not look like
// another one.
const deceptive = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff]/g;

export function plain(text) {
  return String(text ?? '').replace(deceptive, (c) => (c === '\n' || c === '\t' ? ' ' : `‹U+${c.codePointAt(0).toString(16).toUpperCase().padStart(4, '0')}›`));
}

// data is text of the cluster, whose direction does not reach what is beside it.
export function data(text, attributes) {
  return el('bdi', attributes, plain(text));
}

const long = 180;

// message is text of the cluster that may be long. Of what is, the beginning is shown until it is opened.
export function message(text, attributes = {}) {
  const whole = plain(text);
  if (whole.length <= long) return el('p', attributes, data(text));
  return el('details', attributes, el('summary', {}, el('bdi', {}, whole.slice(0, long - 20).trimEnd() + ' …')), el('p', {}, data(text)));
}

// reconcile makes these the children of a parent, and leaves those alone that are in their place: they keep the focus and
// what is selected in them.
export function reconcile(parent, nodes) {
  nodes.forEach((node, i) => {
    if (parent.childNodes[i] !== node) parent.insertBefore(node, parent.childNodes[i] ?? null);
  });
  while (parent.childNodes.length > nodes.length) parent.lastChild.remove();
}

// remembering returns a function that makes nodes of items, and makes one again only when its item has changed.
export function remembering(make) {
  let known = new Map();
  return (items, key) => {
    const now = new Map();
    const nodes = items.map((item, i) => {
      const name = `${key ? key(item) : ''}\n${key ? '' : i}`;
      const text = JSON.stringify(item);
      const before = known.get(name);
      const entry = before?.text === text ? before : { text, node: make(item) };
      if (before && entry !== before) keepOpen(before.node, entry.node);
      now.set(name, entry);
      return entry.node;
    });
    known = now;
    return nodes;
  };
}

// keepOpen opens what was open in the node before, and gives back the focus that goes with it.
function keepOpen(before, after) {
  const opened = after.querySelectorAll('details');
  before.querySelectorAll('details').forEach((d, i) => {
    if (d.open && opened[i]) opened[i].open = true;
  });
  const focused = document.activeElement;
  if (!before.contains(focused)) return;
  const same = [...before.querySelectorAll(focused.tagName)].indexOf(focused);
  queueMicrotask(() => after.querySelectorAll(focused.tagName)[same]?.focus());
}
