/** What a guest does between its boot and its command. */
import { quoted, type GuestShare } from '../guest/index.js';
import {
  addressOf,
  deviceName,
  notStartedStatus,
  rxeEnvironment,
  wireMtuBytes,
  type RxeOptions,
} from './options.js';

/** Serial ports of a guest; its end of the wire goes down and up by a word to the last. */
export const guestPorts = {
  stdout: 'dualpath.out',
  stderr: 'dualpath.err',
  ready: 'dualpath.ready',
} as const;
export const linkPort = 'dualpath.link';

/** Of the shell that the guest starts, not of the caller. */
const ownVariables = ['_', 'SHLVL', 'PWD', 'OLDPWD'];
/** What is still in the pipes when the command ends; a process that it left behind is not waited for. */
const flushTenths = 20;

function exportsOf(env: NodeJS.ProcessEnv): string[] {
  return Object.entries(env).flatMap(([name, value]) =>
    value === undefined || !/^[A-Za-z_]\w*$/.test(name) || ownVariables.includes(name)
      ? []
      : [`export ${name}=${quoted(value)}`],
  );
}

function mountsOf(shares: readonly GuestShare[]): string[] {
  const options = 'trans=virtio,version=9p2000.L,msize=1048576,cache=none';
  return shares.map(
    ({ tag, path }) => `mount -t 9p -o ${options} ${tag} ${quoted(path)} || exit ${notStartedStatus}`,
  );
}

export function guestScript(options: RxeOptions, host: number, shares: readonly GuestShare[]): string {
  const hosts = options.commands.length;
  const env = {
    ...(options.env ?? process.env),
    ...rxeEnvironment(host, hosts, deviceName, options.out),
    ...(hosts === 1 ? {} : { DUALPATH_RXE_LINK: `/dev/virtio-ports/${linkPort}` }),
  };
  const port = (name: string): string => `/dev/virtio-ports/${name}`;
  const { stdout, stderr, ready } = guestPorts;
  return `${[
    ...(hosts === 1 ? ['ip link add eth0 type dummy'] : []),
    `ip address add ${addressOf(host)}/24 dev eth0`,
    `ip link set eth0 mtu ${wireMtuBytes} up`,
    `rdma link add ${deviceName} type rxe netdev eth0 || exit ${notStartedStatus}`,
    ...mountsOf(shares),
    ...exportsOf(env),
    'export PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin',
    'ulimit -l unlimited',
    'ulimit -n 65536',
    `cd ${quoted(options.cwd ?? process.cwd())} || exit ${notStartedStatus}`,
    // All hosts begin together.
    `exec 3<>${port(ready)}`,
    'echo ready >&3',
    'read -r begin <&3',
    'exec 3>&-',
    // Pipes, because a serial port can be opened once only, and who opens /dev/stdout opens it again.
    'mkfifo /dev/dualpath.out /dev/dualpath.err',
    `cat </dev/dualpath.out >${port(stdout)} & out=$!`,
    `cat </dev/dualpath.err >${port(stderr)} & err=$!`,
    `(exec ${options.commands[host - 1]!.map(quoted).join(' ')}) </dev/null >/dev/dualpath.out 2>/dev/dualpath.err`,
    'status=$?',
    `for i in $(seq ${flushTenths}); do`,
    '  kill -0 $out 2>/dev/null || kill -0 $err 2>/dev/null || break',
    '  sleep 0.1',
    'done',
    'exit $status',
  ].join('\n')}\n`;
}
