#!/usr/bin/env node
/**
 * Makes the add-ons that the package carries: prebuilds/linux-ARCH/dualpath.node, and beside each the
 * libsodium it was linked with.
 *
 *   node scripts/prebuild.mjs [--arch x64|arm64]...
 *
 * Both by default. What is built for another architecture is cross-compiled against that architecture's
 * libraries, which are unpacked into build-prebuild/, not installed. Needs what `npm run setup` installs, and
 * for another architecture its cross-compiler (g++-aarch64-linux-gnu, g++-x86-64-linux-gnu) and apt-get.
 */
import { spawnSync } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  realpathSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { addonOptions } from './setup/build.mjs';
import { cmakeBuild } from './setup/cmake.mjs';
import { SetupError, root, run, say } from './setup/common.mjs';

const architectures = {
  x64: { debian: 'amd64', triplet: 'x86_64-linux-gnu', processor: 'x86_64' },
  arm64: { debian: 'arm64', triplet: 'aarch64-linux-gnu', processor: 'aarch64' },
};
// libnl: libibverbs' description asks for it.
const libraries = [
  ...['libsodium-dev', 'libsodium23', 'liburing-dev', 'libxxhash-dev'],
  ...['libibverbs-dev', 'libnl-3-dev', 'libnl-route-3-dev'],
  ...['libc6', 'libgcc-s1', 'libstdc++6'], // what emulation needs to load it
];
const folder = join(root, 'build-prebuild');

function output(command, args) {
  const { error, status, stdout } = spawnSync(command, args, { encoding: 'utf8' });
  if (error || status !== 0) throw new SetupError(`${command} ${args.join(' ')} failed`);
  return stdout.trim();
}

function must(command, args, env) {
  if (!run(command, args, env)) throw new SetupError(`${command} failed; its output is above`);
}

/** Unpacks Debian's libraries of an architecture, with lists and state of their own: the system stays as it is. */
function unpackLibraries(debian) {
  const state = join(folder, `apt-${debian}`);
  const sysroot = join(folder, `sysroot-${debian}`);
  if (existsSync(sysroot)) return sysroot;
  for (const part of ['lists/partial', 'cache/archives/partial', 'debs'])
    mkdirSync(join(state, part), { recursive: true });
  writeFileSync(join(state, 'status'), '');
  const options = [
    `APT::Architecture=${debian}`,
    `APT::Architectures=${debian}`,
    `Dir::State::Lists=${join(state, 'lists')}`,
    `Dir::State::status=${join(state, 'status')}`,
    `Dir::Cache=${join(state, 'cache')}`,
    'APT::Sandbox::User=root',
  ].flatMap((option) => ['-o', option]);
  must('apt-get', [...options, '-qq', 'update']);
  const download = ['-C', join(state, 'debs'), 'apt-get', ...options, '-qq', 'download', ...libraries];
  must('env', download);
  const unpacking = `${sysroot}.part`;
  rmSync(unpacking, { recursive: true, force: true });
  for (const name of readdirSync(join(state, 'debs')))
    must('dpkg-deb', ['-x', join(state, 'debs', name), unpacking]);
  must('mv', [unpacking, sysroot]);
  return sysroot;
}

/** Arguments of CMake, and environment of pkg-config, for an architecture that is not this machine's. */
function crossOptions({ debian, triplet, processor }) {
  const sysroot = unpackLibraries(debian);
  Object.assign(process.env, {
    PKG_CONFIG_LIBDIR: join(sysroot, 'usr/lib', triplet, 'pkgconfig'),
    PKG_CONFIG_SYSROOT_DIR: sysroot,
  });
  return {
    libraryFolder: join(sysroot, 'usr/lib', triplet),
    options: [
      '-DCMAKE_SYSTEM_NAME=Linux',
      `-DCMAKE_SYSTEM_PROCESSOR=${processor}`,
      `-DCMAKE_C_COMPILER=${triplet}-gcc`,
      `-DCMAKE_CXX_COMPILER=${triplet}-g++`,
      `-DDUALPATH_XXHASH_INCLUDE_DIR=${join(sysroot, 'usr/include')}`,
      `-DDUALPATH_URING_ARCHIVE=${join(sysroot, 'usr/lib', triplet, 'liburing.a')}`,
    ],
  };
}

function prebuild(arch) {
  const architecture = architectures[arch];
  say(`prebuilding the add-on for linux ${arch}`);
  const { libraryFolder, options } =
    arch === process.arch
      ? { libraryFolder: output('pkg-config', ['--variable=libdir', 'libsodium']), options: [] }
      : crossOptions(architecture);
  const build = `build-prebuild/${arch}`;
  if (!cmakeBuild(root, build, [...addonOptions, '-DDUALPATH_PORTABLE=ON', ...options]))
    throw new SetupError(`building for linux ${arch} failed; the output is above`);
  const target = join(root, 'prebuilds', `linux-${arch}`);
  rmSync(target, { recursive: true, force: true });
  mkdirSync(target, { recursive: true });
  const tool = (name) => (arch === process.arch ? name : `${architecture.triplet}-${name}`);
  const addon = join(target, 'dualpath.node');
  must(tool('strip'), ['--strip-unneeded', '-o', addon, join(root, build, 'Release/dualpath.node')]);
  // By the name it is asked for: this machine's version decides it.
  const dynamic = output(tool('readelf'), ['-d', addon]);
  const sodium = /\[(libsodium\.so[^\]]*)\]/.exec(dynamic)?.[1];
  if (sodium === undefined) throw new SetupError(`${addon} does not ask for libsodium`);
  copyFileSync(realpathSync(join(libraryFolder, sodium)), join(target, sodium));
}

try {
  const { values } = parseArgs({ options: { arch: { type: 'string', multiple: true } } });
  const wanted = values.arch ?? Object.keys(architectures);
  const unknown = wanted.find((arch) => !(arch in architectures));
  if (unknown !== undefined)
    throw new SetupError(`--arch ${unknown}: it must be ${Object.keys(architectures).join(' or ')}`);
  // This machine's first: the other one changes where pkg-config looks.
  for (const arch of [...wanted].sort((a) => (a === process.arch ? -1 : 1))) prebuild(arch);
} catch (error) {
  if (!(error instanceof SetupError) && error.code?.startsWith('ERR_PARSE_ARGS') !== true) throw error;
  say(`error: ${error.message}`);
  process.exitCode = 1;
}
