/**
 * An engine whose programs come from another process, in any language: this process opens the engine, its store
 * and its geometries, the other one submits and takes the records. docs/door.md describes the other side.
 */
import { closeSync } from 'node:fs';
import {
  callNative,
  native,
  type NativeArena,
  type NativeDoorServer,
  type NativeEngine,
  type NativeGeometry,
} from '../binding/index.js';
import { DualPathError } from '../errors/index.js';
import { none } from './abi.js';
import type { RecordTaker, Runtime } from './runtime.js';

/** Memory that the other process owns and offers; `tag` is its own. */
export interface OfferedMemory {
  readonly tag: number;
  readonly bytes: number;
  readonly arena: NativeArena;
}

export interface SharedDoorOptions {
  /** Of the unix socket (SOCK_SEQPACKET, mode 0600) at which the other process asks for the door; at most 107 bytes. */
  readonly path: string;
  /** The producer's process when one has come, undefined when it has gone: its programs in flight go on and end. */
  readonly onProducer?: (pid: number | undefined) => void;
  /** What the producer's memory holds; its engine gets the geometry's number. Throws to refuse it. */
  readonly onMemory?: (memory: OfferedMemory) => NativeGeometry;
  /** Memory that was not taken, and why: the producer is told that much and no more. */
  readonly onRefused?: (error: unknown) => void;
}

export interface SharedDoorFacts {
  /** Process that submits now. */
  readonly producer: number | undefined;
  /** Processes that have the door mapped read-only. */
  readonly observers: number;
  readonly producersSeen: number;
  /** Connections and packets that were turned away. */
  readonly refused: number;
}

/** What TransferEngine.shareDoor() gives; closed with its engine. */
export class SharedDoor implements RecordTaker {
  readonly path: string;
  readonly #options: SharedDoorOptions;
  readonly #runtime: Runtime;
  readonly #addGeometry: (geometry: NativeGeometry) => number;
  #server: NativeDoorServer | undefined;
  #producersSeen = 0;
  #producer: number | undefined;

  constructor(
    engine: {
      readonly handle: NativeEngine;
      readonly runtime: Runtime;
      addGeometry(geometry: NativeGeometry): number;
    },
    options: SharedDoorOptions,
  ) {
    const { path } = options;
    this.path = path;
    this.#options = options;
    this.#runtime = engine.runtime;
    this.#addGeometry = (geometry) => engine.addGeometry(geometry);
    this.#server = callNative(() => new (native().DoorServer)({ engine: engine.handle, path }));
    this.#runtime.register(this);
  }

  /** @throws CLOSED */
  facts(): SharedDoorFacts {
    const { producer, ...rest } = callNative(() => this.#open().state());
    return { ...rest, producer: producer === 0 ? undefined : producer };
  }

  #open(): NativeDoorServer {
    if (this.#server !== undefined) return this.#server;
    throw new DualPathError('CLOSED', `the door at ${this.path} has been closed`);
  }

  /** For the runtime: something has changed at the socket, or a record of another engine has come. */
  takeRecords(): void {
    if (this.#server === undefined) return;
    const { producer, producersSeen } = this.#server.state();
    // One may have gone and another come between two looks.
    const came = producersSeen !== this.#producersSeen;
    this.#producersSeen = producersSeen;
    if (this.#producer !== undefined && (came || producer === 0)) this.#tell((this.#producer = undefined));
    if (came && producer !== 0) this.#tell((this.#producer = producer));
    for (let offer = this.#server?.takeMemory(); offer !== undefined; offer = this.#server?.takeMemory()) {
      this.#server.answer(offer.tag, this.#geometryOf(offer));
    }
  }

  #tell(pid: number | undefined): void {
    guarded(() => this.#options.onProducer?.(pid));
  }

  /** Its number, or none: whatever the other process sends, this one goes on. */
  #geometryOf({ tag, bytes, fd }: { tag: number; bytes: number; fd: number }): number {
    const { onMemory, onRefused } = this.#options;
    try {
      if (onMemory === undefined) return none;
      const arena = callNative(() => new (native().Arena)({ name: `${this.path}#${tag}`, bytes, fd }));
      return this.#addGeometry(onMemory({ tag, bytes, arena }));
    } catch (error) {
      guarded(() => onRefused?.(error));
      return none;
    } finally {
      closeSync(fd); // the mapping stays
    }
  }

  /** For the runtime. */
  runtimeClosed(): void {
    this.close();
  }

  /** Nobody gets the door any more; who has it keeps its mapping, and its programs end with the engine. Idempotent. */
  close(): void {
    const server = this.#server;
    this.#server = undefined;
    if (server === undefined) return;
    server.close();
    this.#runtime.unregister(this);
  }
}

/** What a listener throws is an uncaught exception, as a listener's of an EventEmitter. */
function guarded(call: () => void): void {
  try {
    call();
  } catch (error) {
    queueMicrotask(() => {
      throw error;
    });
  }
}
