/** What must be on this machine for guests, by the name of the Debian package that brings it. */
import { existsSync, readFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { DualPathError } from '../errors/index.js';

interface GuestPackage {
  readonly name: string;
  readonly command?: string;
  readonly file?: string;
}

/** Administrators' commands are not on everybody's path. */
const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];

/** The environment in which they are all found. */
export const commandEnvironment: NodeJS.ProcessEnv = { ...process.env, PATH: folders.join(delimiter) };

const isPresent = ({ command, file }: GuestPackage): boolean =>
  (command === undefined || folders.some((folder) => existsSync(join(folder, command)))) &&
  (file === undefined || existsSync(file));

/** @throws RDMA_UNAVAILABLE naming those that are missing, and how to install them */
export function requirePackages(path = new URL('../../scripts/guest/packages.json', import.meta.url)): void {
  const packages = JSON.parse(readFileSync(path, 'utf8')) as GuestPackage[];
  const missing = packages.filter((wanted) => !isPresent(wanted)).map(({ name }) => name);
  if (missing.length === 0) return;
  throw new DualPathError(
    'RDMA_UNAVAILABLE',
    `guests need programs that are not on this machine; install them: apt-get install ${missing.join(' ')}`,
    { missing: missing.join(' ') },
  );
}
