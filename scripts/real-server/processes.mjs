/** Brings llama.cpp's server with weights, and starts and ends what the test runs. */
import { spawn, spawnSync } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import { fetchWeights } from '../../examples/engine/install.mjs';

const root = resolve(import.meta.dirname, '../..');
export const main = join(root, 'dist/cli/main.js');
/** Wheels with llama.cpp's HTTP server in them, for processors of any kind: 34 MB. */
const requirement = 'xllamacpp==2026.10.11549';
const startMs = 120_000;

/** @throws with what is missing and why */
export function bring() {
  if (!existsSync(main)) throw new Error('dualpath is not built: npm run setup');
  const model = fetchWeights();
  if (model === undefined) throw new Error('the weights of SmolLM2-135M-Instruct are missing; why is above');
  const cache = join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'dualpath');
  const environment = join(cache, 'real-server');
  const python = join(environment, 'bin/python');
  const says = spawnSync(python, ['-c', 'import xllamacpp; print(xllamacpp.__version__)'], {
    encoding: 'utf8',
  });
  if (says.status !== 0 || `xllamacpp==${says.stdout.trim()}` !== requirement) {
    process.stderr.write(`installing ${requirement} into ${environment} (once)\n`);
    mkdirSync(cache, { recursive: true });
    const pip = ['-m', 'pip', 'install', '--quiet', '--disable-pip-version-check', '--no-deps', requirement];
    for (const [command, ...args] of [
      ['python3', '-m', 'venv', environment],
      [python, ...pip],
    ]) {
      const { status, error } = spawnSync(command, args, { stdio: ['ignore', 2, 2] });
      if (status === 0) continue;
      const why = error?.message ?? `exit ${status}`;
      throw new Error(`llama.cpp's server is missing: ${command} ${args.join(' ')}: ${why}`);
    }
  }
  return { python, model, requirement };
}

/** A process, once it has said on the stream `on` what `pattern` finds. */
export function start(command, args, on, pattern) {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    const timer = setTimeout(() => child.kill('SIGKILL'), startMs);
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (data) => {
        if (said.length < 1 << 20) said += data;
        const found = stream === child[on] ? pattern.exec(said) : null;
        if (found === null) return;
        clearTimeout(timer);
        resolve({ child, found, said: () => said });
      });
    }
    child.once('error', reject);
    child.once('exit', (code) => {
      clearTimeout(timer);
      reject(new Error(`${command} ${args.join(' ')} ended (${code}) before it was ready:\n${said}`));
    });
  });
}

export async function startServer({ python, model }) {
  const script = join(import.meta.dirname, 'llama_server.py');
  const { child, found } = await start(python, [script, model], 'stdout', /^(http:\S+)$/m);
  return { child, url: found[1] };
}

/** `dualpath route` over these URLs, with an administration port and times of a server on shared processors. */
export async function startRouter(urls, secretFile) {
  const replicas = urls.flatMap((url, i) => ['--replica', `${url},name=server-${i}`]);
  const args = ['route', '--port', '0', '--admin-port', '0', '--secret-file', secretFile];
  const kind = [
    '--prefill-us',
    '8000',
    '--cache-tokens',
    '8192',
    '--block-tokens',
    '32',
    '--step-tokens',
    '512',
  ];
  const ready = /routing on (http:\S+)[^]*admin on (http:\S+)/;
  const router = await start(process.execPath, [main, ...args, ...kind, ...replicas], 'stderr', ready);
  return { ...router, url: router.found[1], adminUrl: router.found[2] };
}

export const stop = ({ child }) =>
  new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', resolve);
    child.kill('SIGKILL');
  });
