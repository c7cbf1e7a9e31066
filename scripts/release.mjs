#!/usr/bin/env node
/**
 * Makes a release: tests the package as it would be published, writes its bill of materials, publishes.
 *
 *   node scripts/release.mjs [--publish]
 *
 * Without --publish everything but the publishing is done, into build-release/. Publishing is for a CI that can vouch
 * for the origin (npm's provenance); it refuses a version that CHANGELOG.md does not name, and a changed checkout.
 */
import { spawnSync } from 'node:child_process';
import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { SetupError, root, run, say } from './setup/common.mjs';

const folder = join(root, 'build-release');

function output(command, args) {
  const { error, status, stdout } = spawnSync(command, args, {
    cwd: root,
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 2],
    maxBuffer: 64 * 1024 * 1024,
  });
  if (error || status !== 0) throw new SetupError(`${command} ${args.join(' ')} failed`);
  return stdout;
}

function checkRelease() {
  const { version } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const changelog = readFileSync(join(root, 'CHANGELOG.md'), 'utf8');
  if (!changelog.includes(`\n## ${version}`))
    throw new SetupError(`CHANGELOG.md has no section '## ${version}': write what this version changes`);
  const changed = output('git', ['status', '--porcelain']).trim();
  if (changed !== '') throw new SetupError(`the checkout has changes; commit them first:\n${changed}`);
  return version;
}

try {
  const { values } = parseArgs({ options: { publish: { type: 'boolean', default: false } } });
  const version = checkRelease();
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const made = ['scripts/package-tests.mjs', '--all-architectures', '--keep', folder];
  if (!run('npm', ['run', '--silent', 'setup']) || !run(process.execPath, made))
    throw new SetupError('the package did not pass its tests');
  const sbom = join(folder, `dualpath-${version}.cdx.json`);
  writeFileSync(sbom, output('npm', ['sbom', '--sbom-format', 'cyclonedx', '--omit', 'dev']));
  const tarball = join(folder, `dualpath-${version}.tgz`);
  say(`made ${tarball} and ${sbom}`);
  const publish = ['publish', tarball, '--provenance', '--access', 'public'];
  if (!values.publish) say(`not published; that would be: npm ${publish.join(' ')}`);
  else if (!run('npm', publish)) throw new SetupError('npm publish failed; its output is above');
} catch (error) {
  if (!(error instanceof SetupError) && error.code?.startsWith('ERR_PARSE_ARGS') !== true) throw error;
  say(`error: ${error.message}`);
  process.exitCode = 1;
}
