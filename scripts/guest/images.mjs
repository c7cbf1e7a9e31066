/**
 * A kernel and an initramfs for guests. The kernel is Debian's, fetched as a package and unpacked, never installed; the
 * initramfs holds busybox, modules and init.sh, which makes the host's files the guest's root.
 */
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { SetupError, root, say } from '../setup/common.mjs';

const metapackage = 'linux-image-amd64';
const init = fileURLToPath(new URL('./init.sh', import.meta.url));
const sbin = { ...process.env, PATH: `${process.env.PATH}:/usr/sbin:/sbin` };

/** What any guest of this harness needs: its disks, its root, its serial ports. */
const baseModules = ['virtio_pci', 'virtio_blk', 'virtio_console', '9p', '9pnet_virtio', 'overlay'];

function output(command, args, options = {}) {
  const { error, status, stdout, stderr } = spawnSync(command, args, {
    encoding: 'utf8',
    env: sbin,
    maxBuffer: 1 << 26,
    ...options,
  });
  if (error || status !== 0) {
    throw new SetupError(`${command} ${args.join(' ')}: ${error?.message ?? stderr}`);
  }
  return stdout;
}

/** The package that the metapackage stands for now. */
function kernelPackage() {
  const name = /Depends: (linux-image-\S+)/.exec(output('apt-cache', ['depends', metapackage]))?.[1];
  if (name === undefined) throw new SetupError(`apt-cache knows no ${metapackage}; run apt-get update`);
  return name;
}

function unpackKernel(folder, name) {
  const tree = join(folder, name);
  if (existsSync(join(tree, 'boot'))) return tree;
  say(`fetching ${name}`);
  output('apt-get', ['-qq', 'download', name], { cwd: folder });
  const archive = readdirSync(folder).find((file) => file.startsWith(`${name}_`) && file.endsWith('.deb'));
  const partial = `${tree}.partial`;
  rmSync(partial, { recursive: true, force: true });
  output('dpkg-deb', ['--extract', join(folder, archive), partial]);
  rmSync(join(folder, archive));
  output('mv', [partial, tree]);
  return tree;
}

/** Files of the modules and of what they need, in the order in which they load. */
function moduleFiles(tree, version, modules) {
  output('depmod', ['-b', tree, version]);
  const files = modules.flatMap((module) =>
    output('modprobe', ['-d', tree, '-S', version, '--show-depends', module])
      .split('\n')
      .filter((line) => line.startsWith('insmod '))
      .map((line) => line.split(' ')[1]),
  );
  return [...new Set(files)];
}

function packInitramfs(folder, files, target) {
  rmSync(folder, { recursive: true, force: true });
  for (const name of ['bin', 'proc', 'sys', 'dev', 'tmp', 'host', 'upper', 'guest', 'modules']) {
    mkdirSync(join(folder, name), { recursive: true });
  }
  copyFileSync(output('sh', ['-c', 'command -v busybox']).trim(), join(folder, 'bin/busybox'));
  copyFileSync(init, join(folder, 'init'));
  for (const file of files) copyFileSync(file, join(folder, 'modules', basename(file)));
  writeFileSync(join(folder, 'modules/order'), files.map((file) => `${basename(file)}\n`).join(''));
  output('sh', ['-c', `chmod +x init && find . | cpio -o -H newc --quiet | gzip -1 > '${target}'`], {
    cwd: folder,
  });
}

/**
 * Makes the images, or takes those made before.
 * @param modules further modules to load, by name
 * @returns paths of {kernel, initramfs}
 */
export function guestImages(modules = []) {
  const folder = join(root, 'build-guest');
  mkdirSync(folder, { recursive: true });
  const name = kernelPackage();
  const version = name.slice('linux-image-'.length);
  const tree = unpackKernel(folder, name);
  const initramfs = join(folder, `${['initramfs', ...modules].join('-')}.gz`);
  packInitramfs(
    join(folder, 'initramfs'),
    moduleFiles(tree, version, [...baseModules, ...modules]),
    initramfs,
  );
  return { kernel: join(tree, 'boot', `vmlinuz-${version}`), initramfs };
}
