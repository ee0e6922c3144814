// The browser has asked for the user and the password before it showed this page, and sends them by itself. No script
// ever has them, and nothing is stored.

const patience = 20_000;
const mostKnown = 32;
const known = new Map(); // the last answers, so that one that has not changed is not sent again

// Failure is an answer that is none, or that no answer came: its status is 0.
export class Failure extends Error {
  constructor(status, message, after = 0) {
    super(message);
    this.status = status;
    this.after = after; // seconds after which it may be tried again
  }
}

// get reads one path of the API. Age is how many seconds ago the controller heard of the API server.
export async function get(path) {
  const before = known.get(path);
  const url = new URL(`api/v1/${path}`, location.origin + location.pathname);
  let response;
  try {
    response = await fetch(url, {
      headers: before ? { 'If-None-Match': before.tag } : {}, cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: AbortSignal.timeout(patience),
    });
    const age = Number(response.headers.get('Age') ?? 0);
    if (response.status === 304 && before) return { body: before.body, age };
    const body = await response.json();
    if (!response.ok) throw new Failure(response.status, body.message ?? response.statusText, Number(response.headers.get('Retry-After') ?? 0));
    remember(path, response.headers.get('ETag'), body);
    return { body, age };
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure(response && !response.ok ? response.status : 0, 'no answer');
  }
}

function remember(path, tag, body) {
  known.delete(path);
  if (tag) known.set(path, { tag, body });
  if (known.size > mostKnown) known.delete(known.keys().next().value);
}

// Failures of one part of a page: what cannot be read, or is not there. All else is a failure of the whole.
const ofPart = [400, 404, 503];

// all reads several paths at once, by name. A part that cannot be read is a Failure in place of its answer.
export async function all(paths) {
  const names = Object.keys(paths);
  const answers = await Promise.all(names.map((name) => get(paths[name]).catch((error) => {
    if (ofPart.includes(error.status)) return { body: error, age: 0 };
    throw error;
  })));
  return { parts: Object.fromEntries(names.map((name, i) => [name, answers[i].body])), age: Math.max(...answers.map((a) => a.age)) };
}
