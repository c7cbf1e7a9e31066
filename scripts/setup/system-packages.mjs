import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { SetupError, run, say, succeeds } from './common.mjs';

const aptListsFolder = '/var/lib/apt/lists';
const aptAttempts = 3;
const aptRetryMs = 10_000;

const hasCommand = (name) =>
  (process.env.PATH ?? '').split(delimiter).some((folder) => folder !== '' && existsSync(join(folder, name)));
const hasLibrary = (name) => succeeds('pkg-config', ['--exists', name]);
const hasUvHeader = () =>
  existsSync(resolve(process.execPath, '../../include/node/uv.h')) || hasLibrary('libuv');

/** What must be on the system, under the name of the Debian package that brings it. */
const requirements = [
  { name: 'g++', present: () => hasCommand('g++') },
  { name: 'cmake', present: () => hasCommand('cmake') },
  { name: 'ninja-build', present: () => hasCommand('ninja') || hasCommand('make') },
  { name: 'pkg-config', present: () => hasCommand('pkg-config') },
  { name: 'liburing-dev', present: () => hasLibrary('liburing') },
  { name: 'libsodium-dev', present: () => hasLibrary('libsodium') },
  { name: 'libxxhash-dev', present: () => hasLibrary('libxxhash') },
  { name: 'libuv1-dev', present: hasUvHeader },
  // Its headers; the library itself is opened at run time, where there is one.
  { name: 'libibverbs-dev', present: () => hasLibrary('libibverbs') },
];
const testRequirements = [
  { name: 'libgtest-dev', present: () => hasLibrary('gtest_main') },
  { name: 'clang-format', present: () => hasCommand('clang-format') },
  { name: 'fio', present: () => hasCommand('fio') },
  { name: 'etcd-server', present: () => hasCommand('etcd') },
  { name: 'chromium', present: () => ['chromium', 'chromium-browser', 'google-chrome'].some(hasCommand) },
];

/** What guests need (src/guest/packages.ts asks for the same): administrators' commands are not on everybody's path. */
const guestRequirements = JSON.parse(
  readFileSync(new URL('../guest/packages.json', import.meta.url), 'utf8'),
).map(({ name, command, file }) => ({
  name,
  present: () =>
    (command === undefined || hasCommand(command) || existsSync(join('/usr/sbin', command))) &&
    (file === undefined || existsSync(file)),
}));

/** Debian packages without which the add-on cannot be built here. */
export const missingForBuild = () => missingOf(requirements);

const missingOf = (wanted) => wanted.filter(({ present }) => !present()).map(({ name }) => name);

function haveAptLists() {
  return existsSync(aptListsFolder) && readdirSync(aptListsFolder).some((name) => name.includes('_Packages'));
}

/** Another apt on the machine, or a mirror out of step with the lists, passes after a while: try again. */
async function aptInstall(names) {
  const quiet = ['-qq', '-o', 'Dpkg::Use-Pty=0', '-o', 'DPkg::Lock::Timeout=300'];
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  for (let attempt = 0; attempt < aptAttempts; attempt++) {
    if (attempt > 1) await sleep(aptRetryMs);
    if (attempt > 0 || !haveAptLists()) run('apt-get', [...quiet, 'update'], env);
    if (run('apt-get', [...quiet, 'install', '--yes', '--no-install-recommends', ...names], env)) return true;
  }
  return false;
}

/** Installs what is missing when root on a system with apt-get; otherwise says which command would. */
export async function installSystemPackages({ forTests = false }) {
  const wanted = [...requirements, ...(forTests ? [...testRequirements, ...guestRequirements] : [])];
  const missing = missingOf(wanted);
  if (missing.length === 0) return;

  const command = `apt-get install ${missing.join(' ')}`;
  if (!hasCommand('apt-get')) {
    throw new SetupError(
      `missing on this system, by their Debian names: ${missing.join(', ')}; install them first`,
    );
  }
  if (process.getuid() !== 0) {
    throw new SetupError(`missing system packages; run: sudo ${command}`);
  }
  say(`installing system packages: ${missing.join(' ')}`);
  if (!(await aptInstall(missing))) throw new SetupError(`this command failed: ${command}`);
  const still = missingOf(wanted);
  if (still.length > 0) throw new SetupError(`installed but still not found: ${still.join(', ')}`);
}
