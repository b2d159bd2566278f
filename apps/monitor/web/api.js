// Client of the dashboard's API. The token arrives in the URL fragment, which browsers never send,
// and is kept in this tab's session storage.

const fragment = new URLSearchParams(location.hash.slice(1));
if (fragment.has("token")) {
  sessionStorage.setItem("token", fragment.get("token"));
  fragment.delete("token");
  history.replaceState(null, "", "#" + fragment);
}

// A failed request; status 0: no response.
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}
export function setToken(token) {
  sessionStorage.setItem("token", token);
}

// Requests below /api/v1/. X-Troop protects POST against cross-site requests: a foreign page can't
// set it.
async function call(path, method, accept) {
  const headers = {Accept: accept};
  const token = sessionStorage.getItem("token");
  if (token) headers.Authorization = "Bearer " + token;
  if (method === "POST") headers["X-Troop"] = "1";
  let reply;
  try {
    reply = await fetch("/api/v1/" + path, {method, headers, cache: "no-store",
                                            signal: AbortSignal.timeout(10000)});
  } catch {
    throw new Refused(0, "the dashboard does not respond; is its process still running?");
  }
  if (reply.ok) return reply;
  let message = reply.statusText;
  try {
    message = (await reply.json()).error;
  } catch { /* not JSON: keep the status text */ }
  throw new Refused(reply.status, message);
}
export const get = async (path) => (await call(path, "GET", "application/json")).json();
export const post = async (path) => (await call(path, "POST", "application/json")).json();
export const picture = async (path) => (await call(path, "GET", "image/gif")).blob();
export const run = (name, rest = "") => `runs/${encodeURIComponent(name)}${rest ? "/" + rest : ""}`;
