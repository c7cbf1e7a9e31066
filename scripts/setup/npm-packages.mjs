import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { SetupError, root, run, say } from './common.mjs';

const readJson = (path) => JSON.parse(readFileSync(path, 'utf8'));

/** Throws when this Node is older than package.json allows (`engines.node` is `>=MAJOR.MINOR`). */
export function checkNode() {
  const range = readJson(join(root, 'package.json')).engines.node;
  const [major, minor] = range.replace('>=', '').split('.').map(Number);
  const [haveMajor, haveMinor] = process.versions.node.split('.').map(Number);
  if (haveMajor < major || (haveMajor === major && haveMinor < minor)) {
    throw new SetupError(`Node ${process.versions.node} is too old: dualpath needs ${range}`);
  }
}

/**
 * Whether the packages npm installed are those of the lock file. Packages for other platforms are in
 * the lock file only (optional), so their absence is right.
 * @param wanted `packages` of package-lock.json
 * @param installed `packages` of node_modules/.package-lock.json
 */
export function lockIsInstalled(wanted, installed) {
  const missing = Object.entries(wanted).some(([path, entry]) => {
    if (path === '') return false;
    const have = installed[path];
    return have === undefined ? entry.optional !== true : have.version !== entry.version;
  });
  return !missing && Object.keys(installed).every((path) => path in wanted);
}

/** Runs `npm ci` unless node_modules already holds what package-lock.json names. */
export function installNpmPackages() {
  const installedPath = join(root, 'node_modules/.package-lock.json');
  const wanted = readJson(join(root, 'package-lock.json')).packages;
  if (existsSync(installedPath)) {
    const installed = readJson(installedPath).packages;
    // npm also writes that list when it only resolves the lock file, without the packages themselves.
    const present = Object.keys(installed).every((path) => existsSync(join(root, path, 'package.json')));
    if (present && lockIsInstalled(wanted, installed)) return;
  }
  say('installing npm packages');
  if (!run('npm', ['ci', '--no-audit', '--no-fund'])) {
    throw new SetupError('npm ci failed; its output is above');
  }
}
