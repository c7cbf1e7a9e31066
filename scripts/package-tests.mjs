#!/usr/bin/env node
/**
 * Packs the package as npm would publish it, installs it into an empty folder where there is no compiler,
 * and uses it there.
 *
 *   node scripts/package-tests.mjs [--all-architectures] [--keep FOLDER]
 *
 * Prebuilt add-ons are made for this machine, and with --all-architectures for the other one too, whose add-on is
 * loaded under emulation (qemu-user). Other versions of Node come from npm. --keep leaves the tarball in a folder.
 * Prints a line a check; exit status 1 when one fails.
 */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { parseArgs } from 'node:util';
import { root, succeeds } from './setup/common.mjs';

const limits = { installS: 30, tarballMb: 5, installedMb: 45, packages: 70 };
const nodeVersions = ['20', '22', '24'];
const commandTimeoutMs = 180_000;

const { values: options } = parseArgs({
  options: { 'all-architectures': { type: 'boolean', default: false }, keep: { type: 'string' } },
});
const scratch = mkdtempSync(join(tmpdir(), 'dualpath-package-'));
let failures = 0;

function check(name, holds, found) {
  if (!holds) failures++;
  console.log(`${holds ? 'ok    ' : 'FAILED'} ${name}: ${found}`);
}

function runIn(folder, command, args, env = process.env) {
  const { error, signal, status, stdout, stderr } = spawnSync(command, args, {
    cwd: folder,
    env,
    encoding: 'utf8',
    timeout: commandTimeoutMs,
    maxBuffer: 64 * 1024 * 1024,
  });
  const why = error?.message ?? signal ?? '';
  return { passed: status === 0, stdout: stdout ?? '', said: `${why}${stderr ?? ''}`.trim().slice(-600) };
}

/** A PATH with Node, npm and a shell, but nothing that compiles. */
function bareEnvironment() {
  const bin = join(scratch, 'bin');
  mkdirSync(bin);
  const folders = [dirname(process.execPath), ...(process.env.PATH ?? '').split(delimiter)];
  for (const name of ['node', 'npm', 'npx', 'sh', 'env', 'uname', 'getconf']) {
    const found = folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
    if (found !== undefined) symlinkSync(found, join(bin, name));
  }
  return { ...process.env, PATH: bin };
}

const megabytes = (bytes) => bytes / 1e6;
const usedBytes = (folder) =>
  readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .reduce((sum, entry) => sum + statSync(join(entry.parentPath ?? entry.path, entry.name)).size, 0);

function pack() {
  const { passed, stdout, said } = runIn(root, 'npm', [
    ...['pack', '--ignore-scripts', '--json', '--pack-destination', scratch],
  ]);
  if (!passed) throw new Error(`npm pack failed: ${said}`);
  const [{ filename, size, entryCount }] = JSON.parse(stdout);
  check(
    'tarball',
    megabytes(size) <= limits.tarballMb,
    `${megabytes(size).toFixed(2)} MB, ${entryCount} files`,
  );
  const tarball = join(scratch, filename);
  if (options.keep !== undefined) copyFileSync(tarball, join(options.keep, filename));
  return tarball;
}

function install(tarball, env) {
  const folder = join(scratch, 'empty');
  mkdirSync(folder);
  writeFileSync(join(folder, 'package.json'), '{"private":true,"type":"module"}\n');
  const began = performance.now();
  const installed = runIn(folder, 'npm', ['install', '--no-audit', '--no-fund', tarball], env);
  const doctor = runIn(folder, 'npx', ['--no-install', 'dualpath', 'doctor', '--json'], env);
  const tookS = (performance.now() - began) / 1000;
  check('installed without a compiler', installed.passed, installed.said || 'npm said nothing');
  if (!installed.passed) return undefined;
  // Its exit status says what it thinks of this machine; that it answers is what is looked at here.
  const findings = doctor.stdout.startsWith('{') ? (JSON.parse(doctor.stdout).findings?.length ?? 0) : 0;
  check('npx dualpath doctor', findings > 0, findings > 0 ? `${findings} findings` : doctor.said);
  check('time to both', tookS < limits.installS, `${tookS.toFixed(1)} s`);
  const size = megabytes(usedBytes(join(folder, 'node_modules')));
  check('installed size', size <= limits.installedMb, `${size.toFixed(1)} MB`);
  const lock = JSON.parse(readFileSync(join(folder, 'node_modules/.package-lock.json'), 'utf8'));
  const packages = Object.keys(lock.packages).length - 1;
  check('transitive packages', packages < limits.packages, `${packages}`);
  return folder;
}

function use(folder, node, name, env) {
  const cli = join(folder, 'node_modules/dualpath/dist/cli/main.js');
  const trace = join(folder, 'node_modules/dualpath/examples/traces/agent-sessions-sample.jsonl');
  const args = [cli, 'replay', trace, '--sessions', '1', '--mode', 'dualpath', '--json', '--quiet'];
  const { passed, stdout, said } = runIn(folder, node, args, env);
  const modes = passed ? Object.values(JSON.parse(stdout).modes) : [];
  const verified = modes[0]?.verified_bytes ?? 0;
  const holds = verified > 0 && modes[0].mismatched_bytes === 0;
  check(`replay under ${name}`, holds, passed ? `${verified} bytes verified` : said);
}

/** Node from npm, as files: its installation scripts are not run. */
function fetchNode(version, arch) {
  const folder = join(scratch, `node-${version}-${arch}`);
  mkdirSync(folder);
  const name = `node-linux-${arch}@${version}`;
  const { passed, said } = runIn(folder, 'npm', [
    ...['install', '--no-save', '--no-audit', '--no-fund', '--force', '--ignore-scripts', name],
  ]);
  if (!passed) console.log(`note   ${name} cannot be had here: ${said.split('\n')[0]}`);
  return passed ? join(folder, `node_modules/node-linux-${arch}/bin/node`) : undefined;
}

function loadUnderEmulation(folder) {
  const arch = process.arch === 'x64' ? 'arm64' : 'x64';
  const emulator = `qemu-${arch === 'arm64' ? 'aarch64' : 'x86_64'}-static`;
  if (!succeeds(emulator, ['--version'])) {
    console.log(`note   the add-on for ${arch} was not loaded: ${emulator} is not installed`);
    return;
  }
  const node = fetchNode(nodeVersions[0], arch);
  if (node === undefined) return;
  const sysroot = join(root, `build-prebuild/sysroot-${arch === 'arm64' ? 'arm64' : 'amd64'}`);
  const addon = join(folder, `node_modules/dualpath/prebuilds/linux-${arch}/dualpath.node`);
  const script = `console.log(Object.keys(require(${JSON.stringify(addon)})).length)`;
  const { passed, stdout, said } = runIn(folder, emulator, ['-L', sysroot, node, '-e', script]);
  check(`add-on for ${arch}, under ${emulator}`, passed, passed ? `${stdout.trim()} exports` : said);
}

try {
  const architectures = options['all-architectures'] ? [] : ['--arch', process.arch];
  const prebuilt = spawnSync(process.execPath, [join(root, 'scripts/prebuild.mjs'), ...architectures], {
    stdio: ['ignore', 2, 2],
  });
  check(
    'add-ons prebuilt',
    prebuilt.status === 0,
    options['all-architectures'] ? 'x64, arm64' : process.arch,
  );
  const tarball = pack();
  const env = bareEnvironment();
  const folder = prebuilt.status === 0 ? install(tarball, env) : undefined;
  if (folder !== undefined) {
    for (const version of nodeVersions) {
      const node = fetchNode(version, process.arch);
      if (node !== undefined) use(folder, node, `Node ${version}`, env);
    }
    if (options['all-architectures']) loadUnderEmulation(folder);
  }
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
console.log(failures === 0 ? 'the package is sound' : `${failures} checks failed`);
process.exitCode = failures === 0 ? 0 : 1;
