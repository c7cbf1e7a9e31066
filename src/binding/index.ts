/** Loads the add-on when bytes first move: help, simulator and router work without it. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { DualPathError, errorCodes, type ErrorCode } from '../errors/index.js';
import type { NativeAddon } from './types.js';

export type * from './types.js';

let addon: NativeAddon | undefined;

/** @throws ADDON_MISSING when it has not been built for this machine. */
export function native(): NativeAddon {
  addon ??= load();
  return addon;
}

const inPackage = (path: string): string => fileURLToPath(new URL(`../../${path}`, import.meta.url));

/** What was built on this machine, else what the package carries for machines of its kind. */
function addonPath(): string {
  const built = inPackage('build/Release/dualpath.node');
  const carried = inPackage(`prebuilds/${process.platform}-${process.arch}/dualpath.node`);
  return !existsSync(built) && existsSync(carried) ? carried : built;
}

const remedy = "'npm rebuild dualpath', in a checkout 'npm run setup' (docs/install.md has what it needs)";

function load(): NativeAddon {
  const path = addonPath();
  try {
    return createRequire(import.meta.url)(path) as NativeAddon;
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    throw new DualPathError(
      'ADDON_MISSING',
      `the native add-on could not be loaded (${why}); build it with ${remedy}`,
      { path },
      { cause },
    );
  }
}

/** Runs a call into the add-on; what it throws becomes a DualPathError. */
export function callNative<T>(call: () => T): T {
  try {
    return call();
  } catch (cause) {
    throw fromNative(cause);
  }
}

export function fromNative(cause: unknown): unknown {
  if (!(cause instanceof Error) || !('code' in cause)) return cause;
  const code = String(cause.code);
  if (!(code in errorCodes)) return cause;
  const errno = 'errno' in cause && typeof cause.errno === 'number' ? cause.errno : 0;
  return new DualPathError(code as ErrorCode, cause.message, errno === 0 ? {} : { errno }, { cause });
}
