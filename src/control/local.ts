/**
 * Control messages inside one process. Every message is cloned as it would be on the way to another process,
 * so engines cannot come to share objects by accident.
 */
import type { MessagePort } from 'node:worker_threads';
import type { ControlLink, ControlMessage } from './messages.js';

type Listener = (from: string, message: ControlMessage) => void;

interface Envelope {
  readonly to: string;
  readonly from: string;
  readonly message: ControlMessage;
}

/** Engines of one thread. */
export class LocalControl implements ControlLink {
  readonly #listeners = new Map<string, Listener>();
  readonly #ports = new Map<string, MessagePort>();

  send(to: string, from: string, message: ControlMessage): void {
    const port = this.#ports.get(to);
    if (port !== undefined) {
      port.postMessage({ to, from, message } satisfies Envelope);
      return;
    }
    const copy = structuredClone(message);
    setImmediate(() => this.#listeners.get(to)?.(from, copy));
  }

  listen(engine: string, listener: Listener): () => void {
    this.#listeners.set(engine, listener);
    return () => {
      if (this.#listeners.get(engine) === listener) this.#listeners.delete(engine);
    };
  }

  /** Joins the control of another thread, where `engines` are: both ends of a MessageChannel call this. */
  join(port: MessagePort, engines: readonly string[]): void {
    for (const engine of engines) this.#ports.set(engine, port);
    port.on('message', ({ to, from, message }: Envelope) => this.#listeners.get(to)?.(from, message));
  }
}
