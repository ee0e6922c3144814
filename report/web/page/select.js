import { pageSize } from './state.js';

// sorted returns items in one of orders, which are functions that return a number or a text; a minus before the name
// reverses the order. Items that are equal keep their places, which are those of their names.
export function sorted(items, orders, sort = '') {
  const reverse = sort.startsWith('-');
  const name = reverse ? sort.slice(1) : sort;
  if (!Object.hasOwn(orders, name)) return items;
  const of = orders[name];
  const compare = (a, b) => (a < b ? -1 : a > b ? 1 : 0);
  return [...items].sort((a, b) => (reverse ? compare(of(b), of(a)) : compare(of(a), of(b))));
}

// select returns the items of one page of a list, and how many there are on all pages. Each of filters returns the value
// that a field of the state chooses; words returns the texts that are searched.
export function select(all, { words, filters = {}, orders = {} }, state) {
  const searched = (state.search ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const found = all.filter((item) => {
    if (Object.entries(filters).some(([field, of]) => state[field] && state[field] !== of(item))) return false;
    if (!searched.length) return true;
    const text = words(item).join('\n').toLowerCase();
    return searched.every((word) => text.includes(word));
  });
  const first = ((state.page ?? 1) - 1) * pageSize;
  return { items: sorted(found, orders, state.sort).slice(first, first + pageSize), total: found.length };
}

export function share(part, whole) {
  return whole > 0 ? part / whole : 0;
}

const phases = ['Ready', 'Pending', 'Deleting', 'Unreachable', 'Failed', 'Lost']; // the best first

// badness of a volume that is ready and damaged is more than that of one being made.
export function badness(item) {
  const bad = 2 * phases.indexOf(item.phase);
  return item.healthy ? bad : Math.max(bad, 5);
}

export function created(item) {
  return item.creationTime ? Date.parse(item.creationTime) : 0;
}
