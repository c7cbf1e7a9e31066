import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

/** A proxy under measurement: a process of its own, pinned to a core. */
export interface Contender {
  readonly name: string;
  readonly port: number;
  /** Processor time of its processes so far, in seconds; null where there is none to ask. */
  cpuS(): number | null;
  stop(): Promise<void>;
}

export type ContenderName = 'none' | 'dualpath' | 'nginx' | 'sglang-router';

const mainPath = fileURLToPath(new URL('../cli/main.js', import.meta.url));

export function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer();
    server.listen(0, '127.0.0.1', () => {
      const { port } = server.address() as AddressInfo;
      server.close(() => resolve(port));
    });
  });
}

function onPath(name: string): string | null {
  const folders = [...(process.env['PATH'] ?? '').split(':'), '/usr/sbin', '/sbin'];
  return folders.map((folder) => join(folder, name)).find((path) => existsSync(path)) ?? null;
}

/** Null: it is not on this machine. */
export async function startContender(
  name: ContenderName,
  upstreams: readonly number[],
  core: number | null,
  policy: string,
): Promise<Contender | null> {
  if (name === 'none') return { name, port: upstreams[0]!, cpuS: () => null, stop: () => Promise.resolve() };
  const port = await freePort();
  const folder = await mkdtemp(join(tmpdir(), 'dualpath-bench-'));
  const command = await commandOf(name, port, upstreams, folder, policy);
  if (command === null) {
    await rm(folder, { recursive: true });
    return null;
  }
  const pinned =
    core === null || onPath('taskset') === null ? command : ['taskset', '-c', String(core), ...command];
  const child = spawn(pinned[0]!, pinned.slice(1), { stdio: 'ignore' });
  const stop = async (): Promise<void> => {
    await ended(child);
    await rm(folder, { recursive: true, force: true });
  };
  if (await answers(port, child)) return { name, port, cpuS: () => cpuOf(child.pid!), stop };
  await stop();
  return null;
}

async function commandOf(
  name: ContenderName,
  port: number,
  upstreams: readonly number[],
  folder: string,
  policy: string,
): Promise<string[] | null> {
  const urls = upstreams.map((each) => `http://127.0.0.1:${each}`);
  if (name === 'dualpath') {
    const replicas = urls.flatMap((url) => ['--replica', url]);
    return [
      process.execPath,
      mainPath,
      'route',
      '--port',
      String(port),
      '--policy',
      policy,
      '--quiet',
      ...replicas,
    ];
  }
  if (name === 'nginx') {
    const nginx = onPath('nginx');
    if (nginx === null) return null;
    const path = join(folder, 'nginx.conf');
    await writeFile(path, nginxConfig(port, upstreams, folder));
    return [nginx, '-c', path, '-p', folder];
  }
  // A Python environment with the package, as DUALPATH_SGLANG_ROUTER names it, or on the path.
  const python = process.env['DUALPATH_SGLANG_ROUTER'] ?? onPath('python3');
  if (python === null) return null;
  const log = ['--log-level', 'error', '--prometheus-port', String(await freePort())];
  return [
    ...[python, '-m', 'sglang_router.launch_router', '--host', '127.0.0.1', '--port', String(port)],
    ...['--policy', 'cache_aware', ...log, '--worker-urls', ...urls],
  ];
}

/** Round robin, kept-alive connections both ways, one worker, no buffering of answers. */
function nginxConfig(port: number, upstreams: readonly number[], folder: string): string {
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'];
  return `daemon off; worker_processes 1; pid ${folder}/pid; error_log /dev/null crit;
events { worker_connections 16384; }
http {
  access_log off; client_max_body_size 64m; client_body_buffer_size 128k; keepalive_requests 1000000;
  ${paths.map((path) => `${path}_temp_path ${folder}/${path};`).join(' ')}
  upstream replicas { ${upstreams.map((each) => `server 127.0.0.1:${each};`).join(' ')} keepalive 256; }
  server {
    listen 127.0.0.1:${port};
    location / {
      proxy_pass http://replicas; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
    }
  }
}
`;
}

/** Of a process and its children, by proc(5): fields 14 and 15, in ticks of 10 ms. */
function cpuOf(pid: number): number {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'utf8')
      .replace(/^.*\) /, '')
      .split(' ');
    const own = (Number(fields[11]) + Number(fields[12])) / 100;
    const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
    return children === ''
      ? own
      : children.split(' ').reduce((sum, child) => sum + cpuOf(Number(child)), own);
  } catch {
    return 0;
  }
}

async function answers(port: number, child: ChildProcess): Promise<boolean> {
  const endMs = performance.now() + 20_000;
  while (performance.now() < endMs && child.exitCode === null) {
    try {
      const response = await fetch(`http://127.0.0.1:${port}/v1/models`, {
        signal: AbortSignal.timeout(1000),
      });
      await response.text();
      if (response.ok) return true;
    } catch {
      // Not yet.
    }
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
  return false;
}

async function ended(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const exit = new Promise((resolve) => child.once('exit', resolve));
  child.kill('SIGTERM');
  const timer = setTimeout(() => child.kill('SIGKILL'), 3000);
  await exit;
  clearTimeout(timer);
}
