import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** One scratch folder for the run, inherited by every test process and removed with all that they leave. */
export default function setup(): () => void {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-tests-'));
  process.env['TMPDIR'] = folder;
  return () => {
    rmSync(folder, { recursive: true, force: true });
  };
}
