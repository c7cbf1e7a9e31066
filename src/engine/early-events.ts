/**
 * What is said about requests that an engine does not know yet: its peer, or whoever cancels, may be quicker
 * than the assignment. Said about one that has ended already it is never asked for, so the oldest is forgotten.
 */
const maxRequests = 4096;
const maxEvents = 16;

export class EarlyEvents<Request> {
  readonly #events = new Map<string, ((request: Request) => void)[]>();

  keep(key: string, event: (request: Request) => void): void {
    const events = this.#events.get(key) ?? [];
    if (events.length < maxEvents) events.push(event);
    this.#events.set(key, events);
    if (this.#events.size <= maxRequests) return;
    const [oldest] = this.#events.keys();
    this.#events.delete(oldest!);
  }

  /** Tells the request, now that it is there, in the order in which it came. */
  deliver(key: string, request: Request): void {
    const events = this.#events.get(key) ?? [];
    this.#events.delete(key);
    for (const event of events) event(request);
  }
}
