// Questions to the server this page came from, and to no other.

const REFUSALS = {
  401: "the key is not, or no longer, one of this service. Load the page again to give another.",
  403: "the key may not look at this. Load the page again to give another.",
  429: "too much is asked of the service just now. Try again in a while.",
  503: "the service is busy, or about to stop. Try again in a while.",
};

export const ask = async (name, parameters = new URLSearchParams()) => {
  let reply;
  try {
    reply = await fetch(`api/${name}?${parameters}`);
  } catch {
    throw new Error("the server does not answer. Is occamroute still running?");
  }
  if (!reply.ok) throw new Error(REFUSALS[reply.status] ?? `the server answered with ${reply.status}.`);
  return JSON.parse(await reply.text(), bare);
};

/** Tables by name have no names but their own: a classifier may be called "constructor". */
const bare = (_, value) => (value !== null && typeof value === "object" && !Array.isArray(value) ? Object.setPrototypeOf(value, null) : value);

/** Work that is done once at a time: of what comes meanwhile only the newest is done next. */
export const newest = (work) => {
  let running = null;
  let waiting = null;
  const run = async () => {
    try {
      while (waiting) {
        const given = waiting;
        waiting = null;
        await work(...given, () => waiting !== null);
      }
    } finally {
      running = null;
    }
  };
  return (...given) => {
    waiting = given;
    running ??= run();
    return running;
  };
};

/** Work that waits until nothing has asked for it for a while. */
export const later = (milliseconds, work) => {
  let timer = null;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...given), milliseconds);
  };
};
