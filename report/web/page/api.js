// The browser has asked for the user and the password before it showed this page, and sends them by itself. No script
// ever has them, and nothing is stored.

const patience = 30_000; // as the controller has for an answer
let known = {}; // the last report and its tag, so that one that has not changed is not sent again

// Failure is an answer that is none, or that no answer came: its status is 0.
export class Failure extends Error {
  constructor(status, message, after = 0) {
    super(message);
    this.status = status;
    this.after = after; // seconds after which it may be tried again
  }
}

// get reads the report. Age is how many seconds ago the controller heard of the API server.
export async function get() {
  const url = new URL('api/v1/report', location.origin + location.pathname);
  let response;
  try {
    response = await fetch(url, {
      headers: known.tag ? { 'If-None-Match': known.tag } : {}, cache: 'no-store', credentials: 'same-origin', redirect: 'error', signal: AbortSignal.timeout(patience),
    });
    const age = Number(response.headers.get('Age') ?? 0);
    if (response.status === 304 && known.report) return { report: known.report, age };
    const body = await response.json();
    if (!response.ok) throw new Failure(response.status, body.message ?? response.statusText, Number(response.headers.get('Retry-After') ?? 0));
    known = { tag: response.headers.get('ETag'), report: body };
    return { report: body, age };
  } catch (error) {
    if (error instanceof Failure) throw error;
    throw new Failure(response && !response.ok ? response.status : 0, 'no answer');
  }
}
