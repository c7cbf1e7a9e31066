import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { SetupError, dropUnusableBuildFolder, root, run, say } from './common.mjs';

const stampsPath = join(root, 'node_modules/.cache/dualpath-setup.json');

const addonPath = join(root, 'build/Release/dualpath.node');
const addonInputs = [
  'CMakeLists.txt',
  'native',
  'bindings',
  'node_modules/cmake-js/package.json',
  'node_modules/node-addon-api/package.json',
  'node_modules/node-api-headers/package.json',
];

const distFolder = join(root, 'dist');
const typeScriptInputs = [
  'src',
  'package.json',
  'tsconfig.json',
  'tsconfig.build.json',
  'node_modules/.package-lock.json',
];

function filesUnder(path) {
  if (!statSync(join(root, path)).isDirectory()) return [path];
  return readdirSync(join(root, path), { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath ?? entry.path, entry.name).slice(root.length + 1))
    .filter((file) => !file.startsWith('native/test/'))
    .sort();
}

/** A digest of the names and contents of the files at and under these paths, and of where they lie. */
function digestOf(inputs) {
  const hash = createHash('sha256').update(root);
  for (const file of inputs.flatMap(filesUnder)) {
    const content = readFileSync(join(root, file));
    hash.update(`\0${file}\0${content.length}\0`).update(content);
  }
  return hash.digest('hex');
}

function readStamps() {
  try {
    return JSON.parse(readFileSync(stampsPath, 'utf8'));
  } catch {
    return {}; // none yet, or half written: then everything is out of date
  }
}

/** Runs `build` unless the last one that went well had the same inputs and its product is still there. */
function buildWhenStale(name, inputs, product, build) {
  const digest = digestOf(inputs);
  if (readStamps()[name] === digest && existsSync(product)) return;
  say(`building ${name}`);
  if (!build()) throw new SetupError(`building ${name} failed; the output is above`);
  mkdirSync(dirname(stampsPath), { recursive: true });
  writeFileSync(stampsPath, JSON.stringify({ ...readStamps(), [name]: digest }));
}

/** Builds build/Release/dualpath.node. */
export function buildAddon() {
  buildWhenStale('the native add-on', addonInputs, addonPath, () => {
    dropUnusableBuildFolder(join(root, 'build'), root);
    const cmakeJs = join(root, 'node_modules/cmake-js/bin/cmake-js');
    // CMakeLists.txt asks `node` where its headers are: it must be this one.
    const env = { PATH: `${dirname(process.execPath)}${delimiter}${process.env.PATH}` };
    return run(
      process.execPath,
      [cmakeJs, 'build', '--log-level', 'warn', '-p', String(availableParallelism())],
      env,
    );
  });
}

/** Builds dist/ from src/. */
export function buildTypeScript() {
  buildWhenStale('the TypeScript', typeScriptInputs, distFolder, () => {
    rmSync(distFolder, { recursive: true, force: true });
    return run(process.execPath, [
      join(root, 'node_modules/typescript/bin/tsc'),
      '-p',
      'tsconfig.build.json',
    ]);
  });
}
