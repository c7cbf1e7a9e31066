import { closeSync, openSync, writeSync } from 'node:fs';
import { DualPathError } from '../errors/index.js';
import { DecisionLog, decisionsDocument } from '../scheduler/index.js';

const bufferBytes = 1 << 16;

/** What `dualpath replay --decisions` writes: a line for each request that has ended, in that order. */
export class DecisionsFile {
  readonly #path: string;
  readonly #file: number;
  #lines: string[] = [];
  #length = 0;
  #failed: DualPathError | undefined;

  /** @throws INVALID_ARGUMENT for a file that cannot be written */
  constructor(path: string) {
    this.#path = path;
    try {
      this.#file = openSync(path, 'w');
    } catch (cause) {
      throw this.#error('INVALID_ARGUMENT', cause);
    }
  }

  /** Of one mode of a replay. */
  log(mode: string): DecisionLog {
    return new DecisionLog({ onEnd: (decisions) => this.#add(decisionsDocument(decisions, { mode })) });
  }

  #add(line: string): void {
    this.#lines.push(line);
    this.#length += line.length;
    if (this.#length >= bufferBytes) this.#flush();
  }

  #flush(): void {
    if (this.#lines.length === 0 || this.#failed !== undefined) return;
    try {
      writeSync(this.#file, `${this.#lines.join('\n')}\n`);
    } catch (cause) {
      this.#failed = this.#error('STORAGE_IO', cause); // the scheduler, which is being told, has other worries
    }
    this.#lines = [];
    this.#length = 0;
  }

  #error(code: 'INVALID_ARGUMENT' | 'STORAGE_IO', cause: unknown): DualPathError {
    const why = cause instanceof Error ? cause.message : String(cause);
    return new DualPathError(code, `cannot write '${this.#path}': ${why}`, { path: this.#path }, { cause });
  }

  /** @throws STORAGE_IO when something could not be written */
  close(): void {
    this.#flush();
    closeSync(this.#file);
    if (this.#failed !== undefined) throw this.#failed;
  }
}
