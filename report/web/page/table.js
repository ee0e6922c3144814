import { el, data, plain, reconcile, remembering } from './dom.js';
import { count, many } from './format.js';
import { select } from './select.js';
import { changed, link, pageSize } from './state.js';

// badge says in a word, and in a colour, how something is.
export function badge(word, level) {
  return el('span', { class: `badge ${level}` }, plain(word));
}

// panel is a part of a view under a heading; show replaces what is in it.
export function panel(title, attributes = {}) {
  const body = el('div', { class: 'body' });
  const extra = el('span', { class: 'extra muted' });
  const node = el('section', { ...attributes, 'aria-label': title }, el('h2', {}, title, extra), body);
  return {
    node,
    note: (text) => { extra.textContent = text; },
    show: (...nodes) => reconcile(body, nodes),
  };
}

// unknown is what stands in the place of what cannot be read.
export function unknown(what, report, part) {
  return el('p', { class: 'notice warning' }, data(`The ${what} are not known: ${report.hidden?.[part]}`));
}

// table has a column for each of columns: {name, title, sort, show, number, wide}. It works as cards on a narrow screen, so
// its roles are given: the style of a card takes those of a table away.
export function table(noun, columns, key, empty) {
  const body = el('tbody', { role: 'rowgroup' });
  const heads = columns.map((column) => {
    if (!column.sort) return { cell: el('th', { role: 'columnheader', scope: 'col', class: column.number && 'number' }, column.title) };
    const sorter = el('a', { class: 'sort' }, column.title, el('span', { class: 'arrow', 'aria-hidden': 'true' }));
    return { column, sorter, cell: el('th', { role: 'columnheader', scope: 'col', class: column.number && 'number' }, sorter) };
  });
  const node = el('div', { class: 'list' }, el('table', { role: 'table', 'aria-label': `${noun}s` },
    el('thead', { role: 'rowgroup' }, el('tr', { role: 'row' }, heads.map((h) => h.cell))), body));
  const none = el('p', { class: 'empty muted' }, empty);
  const pages = pager(noun);
  const rows = remembering((item) => el('tr', { role: 'row', class: item.attention ? 'attention' : null }, columns.map((column) => el(
    'td', { role: 'cell', class: [column.number && 'number', column.wide && 'wide'].filter(Boolean).join(' ') || null, 'data-title': column.title }, column.show(item)))));
  return {
    node: el('div', {}, node, none, pages.node),
    update(list, state) {
      heads.filter((h) => h.sorter).forEach(({ column, sorter, cell }) => {
        const now = state.sort === column.sort ? 'ascending' : state.sort === `-${column.sort}` ? 'descending' : null;
        const first = column.number ? `-${column.sort}` : column.sort; // the largest is looked for most
        const next = !now ? first : state.sort === first ? (column.number ? column.sort : `-${column.sort}`) : undefined;
        sorter.setAttribute('href', link(changed(state, { sort: next })));
        if (now) cell.setAttribute('aria-sort', now); else cell.removeAttribute('aria-sort');
      });
      reconcile(body, rows(list.items, key));
      node.hidden = list.items.length === 0;
      none.hidden = list.items.length > 0;
      none.textContent = list.total > 0 ? 'Nothing is on this page.' : isFiltered(state) ? 'Nothing matches.' : empty;
      pages.update(list, state);
    },
  };
}

function isFiltered(state) {
  return ['search', 'phase', 'attention', 'node', 'pool', 'volume'].some((field) => state[field]);
}

// pager turns pages; its links can be sent as well.
function pager(noun) {
  const where = el('span', { class: 'muted' });
  const back = el('a', { class: 'button' }, 'Previous');
  const on = el('a', { class: 'button' }, 'Next');
  const buttons = el('span', { class: 'turn' }, back, on);
  const node = el('nav', { class: 'pager', 'aria-label': `Pages of ${noun}s` }, where, buttons);
  const set = (a, to) => {
    if (to) a.setAttribute('href', to); else a.removeAttribute('href');
    a.setAttribute('aria-disabled', String(!to));
  };
  return {
    node,
    update(list, state) {
      const page = Number(state.page ?? 1);
      const first = (page - 1) * pageSize;
      const last = first + list.items.length;
      where.textContent = list.items.length === list.total ? many(list.total, noun) : `${count(Math.min(first + 1, list.total))}–${count(last)} of ${many(list.total, noun)}`;
      set(back, page > 1 && link({ ...state, page: page - 1 }));
      set(on, last < list.total && list.items.length > 0 && link({ ...state, page: page + 1 }));
      buttons.hidden = list.total <= pageSize && page === 1;
    },
  };
}

// listView is a view that is one table with its tools: {part, items, words, filters, orders, noun, columns, key, empty,
// choices, sorts}. Its items are in a part of the report.
export function listView(of, navigate) {
  const tools = toolbar(of, navigate);
  const rows = table(of.noun, of.columns(navigate), of.key, of.empty);
  const body = el('div', {});
  return {
    node: el('section', { 'aria-label': of.title }, el('h2', { class: 'title' }, of.title), tools.node, of.above, body),
    adopt: (state) => tools.update(state),
    update(report, state) {
      const all = of.items ? of.items(report) : report[of.part];
      if (!all) return reconcile(body, [unknown(`${of.noun}s`, report, of.part)]);
      rows.update(select(all, of, state), state);
      return reconcile(body, [rows.node]);
    },
  };
}

const typing = 250;

// toolbar searches, filters and, where there are no heads of columns, sorts.
function toolbar(of, navigate) {
  let state = {};
  let timer;
  const search = el('input', { id: 'search', type: 'search', placeholder: of.searches, autocomplete: 'off', spellcheck: 'false', maxlength: '253' });
  const now = () => {
    clearTimeout(timer);
    if ((state.search ?? '') !== search.value.trim()) navigate(changed(state, { search: search.value.trim() || undefined }), { replace: true });
  };
  search.addEventListener('input', () => {
    clearTimeout(timer);
    timer = setTimeout(now, typing);
  });
  const selects = [...(of.choices ?? []), ...(of.sorts ? [{ field: 'sort', title: 'Sort', any: 'by name', values: of.sorts, narrow: true }] : [])].map((f) => {
    const select = el('select', { id: `filter-${f.field}`, change: () => navigate(changed(state, { [f.field]: select.value || undefined })) },
      el('option', { value: '' }, f.any), Object.entries(f.values).map(([value, title]) => el('option', { value }, title)));
    return { f, select, node: el('div', { class: f.narrow ? 'field narrow' : 'field' }, el('label', { for: select.id }, f.title), select) };
  });
  const chips = el('div', { class: 'chips' });
  return {
    node: el('form', { class: 'toolbar', role: 'search', submit: (event) => { event.preventDefault(); now(); } },
      el('div', { class: 'field grow' }, el('label', { for: 'search' }, 'Search'), search), selects.map((s) => s.node), chips),
    update(next) {
      state = next;
      if (document.activeElement !== search) search.value = state.search ?? '';
      selects.forEach(({ f, select }) => { select.value = state[f.field] ?? ''; });
      reconcile(chips, ['node', 'pool', 'volume'].filter((field) => state[field]).map((field) => el(
        'a', { class: 'chip', href: link(changed(state, { [field]: undefined })), 'aria-label': `Remove the filter ${field} ${plain(state[field])}` },
        `${field} `, data(state[field]), el('span', { 'aria-hidden': 'true' }, ' ×'))));
    },
  };
}


