/** What a folder's file system is, and whether it takes O_DIRECT: a file is written there, read back and removed. */
import {
  closeSync,
  constants,
  openSync,
  readSync,
  statfsSync,
  statSync,
  unlinkSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { libc } from './libc.js';

/** O_DIRECT; errno by name where a step failed. */
export type DirectIoAnswer =
  | { readonly works: true; readonly alignmentBytes: number }
  | { readonly works: false; readonly step: 'open' | 'write' | 'read'; readonly errno: string }
  | { readonly works: null; readonly why: string };

export type FileSystemAnswer =
  | {
      readonly freeBytes: number;
      readonly freeFiles: number;
      readonly totalFiles: number;
      readonly deviceMajor: number;
      readonly deviceMinor: number;
      readonly problem: null;
    }
  | { readonly problem: string };

/** Smaller ones are tried first; block files are aligned to the last. */
const alignments = [512, 1024, 2048, 4096] as const;
const mostBytes = 8192;

export function probeFileSystem(folder: string): FileSystemAnswer {
  try {
    const { bavail, bsize, ffree, files } = statfsSync(folder);
    const { dev } = statSync(folder, { bigint: true });
    // glibc's gnu_dev_major and gnu_dev_minor.
    const deviceMajor = Number(((dev >> 8n) & 0xfffn) | ((dev >> 32n) & ~0xfffn));
    const deviceMinor = Number((dev & 0xffn) | ((dev >> 12n) & ~0xffn));
    return {
      freeBytes: bavail * bsize,
      freeFiles: ffree,
      totalFiles: files,
      deviceMajor,
      deviceMinor,
      problem: null,
    };
  } catch (error) {
    return { problem: (error as Error).message };
  }
}

export function probeDirectIo(folder: string): DirectIoAnswer {
  const { calls, problem } = libc();
  if (calls === null) return { works: null, why: problem };
  const path = join(folder, `.dualpath-doctor-${process.pid}`);
  let step: 'open' | 'write' | 'read' = 'open';
  try {
    const flags = constants.O_RDWR | constants.O_CREAT | constants.O_EXCL | constants.O_DIRECT;
    const file = openSync(path, flags, 0o600);
    try {
      const memory = alignedMemory(calls.address);
      step = 'write';
      writeSync(file, memory, 0, 4096, 0);
      step = 'read';
      readSync(file, memory, 0, 4096, 0);
      return { works: true, alignmentBytes: leastAlignment(file, memory) };
    } finally {
      closeSync(file);
      unlinkSync(path);
    }
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    return code === undefined ? { works: null, why: message } : { works: false, step, errno: code };
  }
}

function leastAlignment(file: number, memory: Buffer): number {
  for (const bytes of alignments) {
    try {
      readSync(file, memory, bytes, bytes, bytes);
      return bytes;
    } catch {
      // more is needed
    }
  }
  return 4096;
}

/** Node promises no alignment: more is taken, and the part that lies on a page is used. */
function alignedMemory(address: (buffer: Buffer) => bigint): Buffer {
  const memory = Buffer.alloc(mostBytes + 4096);
  const start = (4096 - Number(address(memory) % 4096n)) % 4096;
  return memory.subarray(start, start + mostBytes);
}
