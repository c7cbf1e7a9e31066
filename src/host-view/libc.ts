/** The C library by FFI. koffi comes prebuilt; where it does not load, what it would have told stays unknown. */
import { createRequire } from 'node:module';
import type koffiModule from 'koffi';

export interface LibcCalls {
  readonly syscall: (number: number, entries: number, params: Buffer) => number | bigint;
  readonly close: (descriptor: number) => number;
  readonly errno: () => number;
  readonly address: (buffer: Buffer) => bigint;
}

export type Libc =
  { readonly calls: LibcCalls; readonly problem: null } | { readonly calls: null; readonly problem: string };

let loaded: Libc | undefined;

export function libc(): Libc {
  return (loaded ??= load());
}

export function loadKoffi(): typeof koffiModule {
  return createRequire(import.meta.url)('koffi') as typeof koffiModule;
}

function load(): Libc {
  try {
    const koffi = loadKoffi();
    const library = koffi.load('libc.so.6');
    return {
      calls: {
        syscall: library.func('syscall', 'long', ['long', 'unsigned int', 'void *']),
        close: library.func('close', 'int', ['int']),
        errno: () => koffi.errno(),
        address: (buffer) => BigInt(koffi.address(buffer) ?? 0),
      },
      problem: null,
    };
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    return { calls: null, problem: `koffi or libc.so.6 could not be loaded (${why})` };
  }
}
