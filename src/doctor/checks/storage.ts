/** io_uring, and the block store's folder. */
import { readNumber } from '../../host-view/index.js';
import { isOlder, type Check, type Host, type Problem } from '../check.js';
import { statusField } from '../limits.js';

export const ioUring: Check = {
  id: 'io-uring',
  looksAt:
    'io_uring_setup(2) itself, kernel.io_uring_disabled, seccomp, the kernel’s version (5.19 or later)',
  why: 'Where it is refused, 16 threads read and write instead: more CPU a block, fewer reads under way.',
  remedy:
    '`sysctl kernel.io_uring_disabled=0`; containers: a seccomp profile that allows io_uring_*; Linux 5.19 or later',
  run: ({ view, kernel }) => {
    const answer = view.probes.ioUring();
    if (answer.allowed === null)
      return [
        {
          severity: 'unknown',
          found: `io_uring could not be tried: ${answer.why}`,
          remedy: 'install the npm packages; sysctl kernel.io_uring_disabled shows the kernel’s setting',
        },
      ];
    if (answer.allowed && !isOlder(kernel, [5, 19])) return [];
    if (answer.allowed || answer.errno === 'ENOSYS')
      return [
        {
          severity: 'warning',
          found: `Linux ${kernel.join('.')}${answer.allowed ? '' : ' without io_uring (ENOSYS)'}: threads are used`,
          remedy: isOlder(kernel, [5, 19])
            ? 'update to Linux 5.19 or later'
            : 'a kernel with CONFIG_IO_URING, or a seccomp profile that allows io_uring_setup',
        },
      ];
    return [{ severity: 'warning', ...refusal(view, answer.errno) }];
  },
};

function refusal(view: Host['view'], errno: string): { found: string; remedy: string } {
  const disabled = readNumber(view, '/proc/sys/kernel/io_uring_disabled') ?? 0;
  if (disabled > 0) {
    const remedy =
      disabled === 1
        ? 'sysctl -w kernel.io_uring_disabled=0, or put the user’s group into kernel.io_uring_group'
        : 'sysctl -w kernel.io_uring_disabled=0';
    return { found: `io_uring is refused (${errno}): kernel.io_uring_disabled is ${disabled}`, remedy };
  }
  if (statusField(view, 'Seccomp') === '2') {
    const remedy =
      'start the container with a seccomp profile that allows io_uring_setup, io_uring_enter and io_uring_register (or --security-opt seccomp=unconfined)';
    return { found: `io_uring is refused (${errno}) by a seccomp filter`, remedy };
  }
  const remedy = 'look for a security module (ausearch -m avc; dmesg) that denies io_uring';
  return { found: `io_uring is refused (${errno})`, remedy };
}

export const storeDirectIo: Check = {
  id: 'store-direct-io',
  looksAt: '`--store`: a file written and read with O_DIRECT, and the alignment that is needed',
  why: 'Blocks are read and written past the page cache; where O_DIRECT is refused the store cannot be opened.',
  remedy: 'Put the store on ext4, XFS or another file system with O_DIRECT and blocks of at most 4096 bytes',
  run: ({ view, store }) => {
    if (store === undefined) return [];
    const answer = view.probes.directIo(store);
    if (answer.works === null)
      return [
        {
          severity: 'unknown',
          found: `O_DIRECT could not be tried in ${store}: ${answer.why}`,
          remedy: `dd if=/dev/zero of=${store}/probe oflag=direct bs=4k count=1`,
        },
      ];
    if (!answer.works) {
      const remedies: Readonly<Record<string, string>> = {
        EACCES: `chown or chmod ${store} so that this user can write there`,
        EPERM: `chown or chmod ${store} so that this user can write there`,
        EROFS: `mount -o remount,rw $(findmnt -no TARGET -T ${store})`,
        ENOENT: `mkdir -p ${store}`,
        ENOSPC: `dualpath store gc ${store}, or more space`,
      };
      const remedy =
        remedies[answer.errno] ??
        'put the store on a file system with O_DIRECT: ext4, XFS, or a parallel one (not tmpfs before Linux 6.6)';
      return [
        {
          severity: 'error',
          found: `O_DIRECT in ${store}: ${answer.step} failed with ${answer.errno}`,
          remedy,
        },
      ];
    }
    return [];
  },
};

const wantedBytes = 16 * 2 ** 30;

export const storeSpace: Check = {
  id: 'store-space',
  looksAt: '`--store`: free bytes and inodes',
  why: 'A block is a file: without space or inodes nothing is stored any more, and hits turn into misses.',
  remedy: '`dualpath store gc`, a larger file system, more inodes (`mkfs.ext4 -i`)',
  run: ({ view, store }) => {
    if (store === undefined) return [];
    const system = view.probes.fileSystem(store);
    if (system.problem !== null)
      return [{ severity: 'error', found: `${store}: ${system.problem}`, remedy: `mkdir -p ${store}` }];
    const problems: Problem[] = [];
    if (system.freeBytes < wantedBytes) {
      const found = `${store} has ${(system.freeBytes / 2 ** 30).toFixed(1)} GiB left`;
      problems.push({ severity: 'warning', found, remedy: `dualpath store gc ${store}, or more space` });
    }
    // Some file systems make inodes as they are needed and count none.
    if (system.totalFiles > 0 && system.freeFiles < system.totalFiles / 50) {
      const found = `${store} has ${system.freeFiles} of ${system.totalFiles} inodes left`;
      problems.push({ severity: 'warning', found, remedy: 'mkfs with more inodes (ext4: -i 65536), or XFS' });
    }
    return problems;
  },
};

const networkTypes = ['nfs', 'nfs4', 'cifs', 'smb3', 'fuse.sshfs', '9p'];
const memoryTypes = ['tmpfs', 'ramfs'];

interface Mount {
  readonly point: string;
  readonly type: string;
  readonly options: string;
}

/** The mount that a path lies on, of /proc/self/mountinfo. */
function mountOf({ view }: Host, path: string): Mount | undefined {
  const mounts = (view.read('/proc/self/mountinfo').text ?? '').split('\n').flatMap((line): Mount[] => {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , , point = '', options = ''] = left.split(' ');
    return point === '' ? [] : [{ point, options, type: right.split(' ')[0] ?? '' }];
  });
  const holds = ({ point }: Mount): boolean =>
    point === '/' || path === point || path.startsWith(`${point}/`);
  // Of several at one point the last is on top.
  return mounts
    .filter(holds)
    .reduce<Mount | undefined>(
      (best, one) => (best === undefined || one.point.length >= best.point.length ? one : best),
      undefined,
    );
}

export const storeFileSystem: Check = {
  id: 'store-file-system',
  looksAt: '`--store`: type and options of its mount, the block device’s logical block size, rotation',
  why: 'Network file systems add a round trip to each open, memory file systems forget, drives that turn seek for each block, and device blocks above 4096 bytes refuse the store’s alignment.',
  remedy: 'A local NVMe file system, or a parallel one made for it',
  run: (host) => {
    const { view, store } = host;
    if (store === undefined) return [];
    const problems: Problem[] = [];
    const mount = mountOf(host, store);
    if (mount !== undefined && networkTypes.includes(mount.type)) {
      const remedy = 'a local NVMe file system, or a parallel file system with RDMA';
      problems.push({
        severity: 'warning',
        found: `${store} lies on ${mount.type} (${mount.point})`,
        remedy,
      });
    }
    if (mount !== undefined && memoryTypes.includes(mount.type)) {
      const found = `${store} lies on ${mount.type} (${mount.point}): what is stored is gone after a restart, and takes memory`;
      problems.push({ severity: 'warning', found, remedy: 'a file system on a drive' });
    }
    const system = view.probes.fileSystem(store);
    if (system.problem !== null || mount === undefined) return problems;
    return [...problems, ...deviceProblems(host, `${system.deviceMajor}:${system.deviceMinor}`, store)];
  },
};

function deviceProblems({ view }: Host, numbers: string, store: string): Problem[] {
  const device = view.resolve(`/sys/dev/block/${numbers}`);
  if (device === null) return [];
  // A partition has its disk's queue.
  const queue = view.exists(`${device}/queue`) ? `${device}/queue` : `${device}/../queue`;
  const problems: Problem[] = [];
  const logical = readNumber(view, `${queue}/logical_block_size`) ?? 512;
  if (logical > 4096) {
    const found = `the drive of ${store} has logical blocks of ${logical} bytes`;
    const remedy = 'format it with 4096-byte blocks (nvme format --lbaf), or use another drive';
    problems.push({ severity: 'error', found, remedy });
  }
  if (readNumber(view, `${queue}/rotational`) === 1 && !/virtual|virtio|loop/.test(device)) {
    const found = `the drive of ${store} says that it turns: every block costs a seek`;
    const remedy = `an SSD; if it is one: echo 0 > ${queue}/rotational`;
    problems.push({ severity: 'note', found, remedy });
  }
  return problems;
}
