/** Which instance a response came from, the least recently used is forgotten first: `previous_response_id` has to go there. */
export class ResponsePlaces {
  readonly #limit: number;
  readonly #places = new Map<string, string>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  /** One tenant's ids are not another's. */
  remember(tenant: string, responseId: string, instance: string): void {
    const key = keyOf(tenant, responseId);
    this.#places.delete(key);
    this.#places.set(key, instance);
    if (this.#places.size <= this.#limit) return;
    for (const oldest of this.#places.keys()) {
      this.#places.delete(oldest);
      break;
    }
  }

  find(tenant: string, responseId: string): string | undefined {
    const key = keyOf(tenant, responseId);
    const instance = this.#places.get(key);
    if (instance !== undefined) {
      this.#places.delete(key);
      this.#places.set(key, instance);
    }
    return instance;
  }

  get size(): number {
    return this.#places.size;
  }
}

function keyOf(tenant: string, responseId: string): string {
  return JSON.stringify([tenant, responseId]);
}
