import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';
import { requirePackages } from '../../src/guest/index.js';

it('names the packages that are missing, and no others', () => {
  const folder = mkdtempSync(join(tmpdir(), 'dualpath-packages-'));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = join(folder, 'packages.json');
  const packages = [
    { name: 'bash', command: 'bash' },
    { name: 'a-package', command: 'no-such-command' },
    { name: 'b-package', file: '/no/such/file' },
  ];
  writeFileSync(file, JSON.stringify(packages));
  expect(() => requirePackages(pathToFileURL(file))).toThrow(/apt-get install a-package b-package$/);
});
