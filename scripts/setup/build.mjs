import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readFileSync,
  readdirSync,
  rmSync,
  statSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { cmakeBuild } from './cmake.mjs';
import { SetupError, root, run, say } from './common.mjs';

const stampsPath = join(root, 'node_modules/.cache/dualpath-setup.json');

const addonPath = join(root, 'build/Release/dualpath.node');
const addonInputs = [
  'CMakeLists.txt',
  'native',
  'bindings',
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

/** CMakeLists.txt asks `node` where its headers are: it must be this one. */
export const addonOptions = ['-DDUALPATH_ADDON=ON', `-DDUALPATH_NODE=${process.execPath}`];

/** Builds build/Release/dualpath.node. */
export function buildAddon() {
  buildWhenStale('the native add-on', addonInputs, addonPath, () => cmakeBuild(root, 'build', addonOptions));
}

/** Puts what the package carries of the plot library into vendor/. */
export function copyPlotLibrary() {
  const from = join(root, 'node_modules/echarts');
  const files = ['dist/echarts.min.js', 'LICENSE', 'NOTICE'];
  const target = (file) => join(root, 'vendor', file === files[0] ? 'echarts.min.cjs' : `echarts-${file}`);
  buildWhenStale('the plot library', ['node_modules/echarts/package.json'], target(files[0]), () => {
    mkdirSync(join(root, 'vendor'), { recursive: true });
    for (const file of files) copyFileSync(join(from, file), target(file));
    return true;
  });
}

/** Builds dist/ from src/. */
export function buildTypeScript() {
  buildWhenStale('the TypeScript', typeScriptInputs, distFolder, () => {
    rmSync(distFolder, { recursive: true, force: true });
    const compiler = join(root, 'node_modules/typescript/bin/tsc');
    if (!run(process.execPath, [compiler, '-p', 'tsconfig.build.json'])) return false;
    // npm does that once, when it first links the command (`npx dualpath`), and not for one that is built again.
    chmodSync(join(distFolder, 'cli/main.js'), 0o755);
    return true;
  });
}
