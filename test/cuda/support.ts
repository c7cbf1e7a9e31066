/** The stand-in for CUDA's driver (native/test/cuda), compiled when a test asks for it. */
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export function makeStandInCuda(): { readonly library: string; readonly remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-cuda-'));
  const library = join(folder, 'libstandin-cuda.so');
  const sources = join(import.meta.dirname, '../../native/test/cuda');
  const files = readdirSync(sources)
    .filter((name) => name.endsWith('.c'))
    .map((name) => join(sources, name));
  // A sanitizer that is loaded into this process has no business in the compiler.
  const env = { ...process.env, LD_PRELOAD: '' };
  execFileSync('gcc', ['-shared', '-fPIC', '-O1', '-o', library, ...files, '-lpthread'], { env });
  return { library, remove: () => rmSync(folder, { recursive: true }) };
}
