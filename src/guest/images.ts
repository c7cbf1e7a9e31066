/**
 * A kernel and an initramfs for guests, kept in a cache folder. The kernel is Debian's, fetched as a package and unpacked,
 * never installed; the initramfs holds busybox, modules and init.sh, which makes the host's files the guest's root.
 */
import { createHash } from 'node:crypto';
import { execFile } from 'node:child_process';
import {
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { homedir } from 'node:os';
import { basename, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { DualPathError } from '../errors/index.js';
import { commandEnvironment } from './packages.js';

export interface GuestImages {
  readonly kernel: string;
  readonly initramfs: string;
  /** Where both lie. */
  readonly cache: string;
}

export interface ImageOptions {
  /** Further modules by name; of those in `optional` it does not matter whether this kernel has them. */
  readonly modules?: readonly string[];
  readonly optional?: readonly string[];
  /** Default: `dualpath/guest` in the user's cache folder (XDG_CACHE_HOME, ~/.cache). */
  readonly cache?: string;
  readonly onProgress?: (step: string) => void;
  readonly signal?: AbortSignal;
}

const metapackage = 'linux-image-amd64';
const init = fileURLToPath(new URL('../../scripts/guest/init.sh', import.meta.url));
/** What any guest needs: its disks, its root, its serial ports. */
const baseModules = ['virtio_pci', 'virtio_blk', 'virtio_console', '9p', '9pnet_virtio', 'overlay'];
const folders = ['bin', 'proc', 'sys', 'dev', 'tmp', 'host', 'upper', 'guest', 'modules'];

const execute = promisify(execFile);

async function output(command: string, args: readonly string[], options: object = {}): Promise<string> {
  try {
    const { stdout } = await execute(command, args, {
      encoding: 'utf8',
      env: commandEnvironment,
      maxBuffer: 1 << 26,
      ...options,
    });
    return stdout.toString();
  } catch (cause) {
    const { stderr = '', message = '' } = cause as { stderr?: string; message?: string };
    const why = stderr.trim().split('\n').at(-1) || message;
    throw new DualPathError('RDMA_UNAVAILABLE', `${command} ${args.join(' ')}: ${why}`, {}, { cause });
  }
}

function defaultCache(): string {
  const base = process.env['XDG_CACHE_HOME'] || join(homedir(), '.cache');
  return join(base, 'dualpath', 'guest');
}

/** Makes a file or a folder beside its place and renames it into it: whoever looks finds all of it or nothing. */
async function publish(target: string, make: (place: string) => Promise<void>): Promise<void> {
  if (existsSync(target)) return;
  const scratch = mkdtempSync(`${target}.making-`);
  try {
    const place = join(scratch, basename(target));
    await make(place);
    renameSync(place, target);
  } catch (error) {
    if (!existsSync(target)) throw error; // somebody else was quicker
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** The unpacked kernel of the cache; the package that the metapackage stands for is fetched where there is none. */
async function kernelTree(cache: string, { onProgress, signal }: ImageOptions): Promise<string> {
  const kept = readdirSync(cache).filter((name) => /^linux-image-.*-amd64$/.test(name));
  if (kept.length > 0) return join(cache, kept.sort().at(-1)!);
  const answer = await output('apt-cache', ['depends', metapackage]);
  const name = /Depends: (linux-image-\S+)/.exec(answer)?.[1];
  if (name === undefined) {
    throw new DualPathError('RDMA_UNAVAILABLE', `apt-cache knows no ${metapackage}; run 'apt-get update'`);
  }
  const tree = join(cache, name);
  onProgress?.(`fetching ${name}`);
  await publish(tree, async (place) => {
    const folder = join(place, '..');
    await output('apt-get', ['-qq', 'download', name], { cwd: folder, signal });
    const archive = readdirSync(folder).find((file) => file.endsWith('.deb'));
    await output('dpkg-deb', ['--extract', join(folder, archive ?? name), place], { signal });
    await output('depmod', ['-b', place, name.slice('linux-image-'.length)], { signal });
  });
  return tree;
}

/** Files of the modules and of what they need, in the order in which they load. */
async function moduleFiles(tree: string, version: string, options: ImageOptions): Promise<string[]> {
  const wanted = [...(options.optional ?? []), ...baseModules, ...(options.modules ?? [])];
  const lists = await Promise.all(
    wanted.map((module) =>
      output('modprobe', ['-d', tree, '-S', version, '--show-depends', module]).catch((error: unknown) => {
        if (options.optional?.includes(module) === true) return '';
        throw error;
      }),
    ),
  );
  const files = lists.flatMap((list) =>
    list.split('\n').flatMap((line) => (line.startsWith('insmod ') ? [line.split(' ')[1]!] : [])),
  );
  return [...new Set(files)];
}

const decompressors: Readonly<Record<string, string>> = { xz: 'xz -dc', zst: 'zstd -dc', gz: 'gzip -dc' };

async function packInitramfs(place: string, files: readonly string[]): Promise<void> {
  const folder = `${place}.files`;
  for (const name of folders) mkdirSync(join(folder, name), { recursive: true });
  const busybox = (await output('sh', ['-c', 'command -v busybox'])).trim();
  copyFileSync(busybox, join(folder, 'bin/busybox'));
  copyFileSync(init, join(folder, 'init'));
  const names: string[] = [];
  for (const file of files) {
    const [, name, packing] = /([^/]*\.ko)(?:\.(\w+))?$/.exec(file)!;
    names.push(name!);
    const target = join(folder, 'modules', name!);
    if (packing === undefined) copyFileSync(file, target);
    else await output('sh', ['-c', `${decompressors[packing]} '${file}' > '${target}'`]);
  }
  writeFileSync(join(folder, 'modules/order'), names.map((name) => `${name}\n`).join(''));
  const pack = `chmod +x init && find . | cpio -o -H newc --quiet | gzip -1 > '${place}'`;
  await output('sh', ['-c', pack], { cwd: folder });
}

/**
 * Makes the images, or takes those made before. The kernel stays the one first fetched; remove the cache for a newer one.
 * @throws RDMA_UNAVAILABLE where it cannot be fetched or lacks a module
 */
export async function guestImages(options: ImageOptions = {}): Promise<GuestImages> {
  const cache = options.cache ?? defaultCache();
  mkdirSync(cache, { recursive: true });
  const tree = await kernelTree(cache, options);
  const version = basename(tree).slice('linux-image-'.length);
  const contents = JSON.stringify([version, options.modules, options.optional, readFileSync(init, 'utf8')]);
  const hash = createHash('sha256').update(contents).digest('hex').slice(0, 16);
  const initramfs = join(cache, `initramfs-${hash}.gz`);
  await publish(initramfs, async (place) => {
    options.onProgress?.('packing the initramfs');
    await packInitramfs(place, await moduleFiles(tree, version, options));
  });
  return { kernel: join(tree, 'boot', `vmlinuz-${version}`), initramfs, cache };
}
