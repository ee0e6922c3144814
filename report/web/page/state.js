// What is shown is in the address, so that it can be sent, kept, and reached with the buttons of the browser.

export const views = {
  overview: 'Overview', pools: 'Nodes and pools', volumes: 'Volumes', snapshots: 'Snapshots', servers: 'NFS servers', events: 'Events',
};

const fields = ['view', 'search', 'sort', 'phase', 'attention', 'node', 'pool', 'volume', 'page'];

export function read(address) {
  const given = new URLSearchParams(address);
  const state = { view: 'overview' };
  for (const field of fields) {
    const value = given.get(field);
    if (value) state[field] = value;
  }
  if (!Object.hasOwn(views, state.view)) state.view = 'overview';
  if (!/^[1-9][0-9]{0,3}$/.test(state.page ?? '') || state.page === '1') delete state.page;
  return state;
}

// link is the address of a state.
export function link(state) {
  const given = new URLSearchParams();
  for (const field of fields) {
    if (state[field] && !(field === 'view' && state.view === 'overview')) given.set(field, state[field]);
  }
  const text = given.toString();
  return text ? `?${text}` : './';
}

// changed is a state with other fields; what changes the list begins at its first page.
export function changed(state, fields) {
  return { ...state, page: undefined, ...fields };
}

export const pageSize = 100;
