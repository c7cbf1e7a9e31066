/** The rules of CONTRIBUTING.md that a program can check, over every file of the repository. */
import { describe, expect, it } from 'vitest';
import { coreWithoutNode, cppFunctionLength, cppUnitsLast } from './cpp-rules.js';
import { readSourceFiles } from './files.js';
import {
  fileLength,
  isSource,
  noDisabledTests,
  noOpenWork,
  noPrivatePaths,
  noRegistryUrls,
  plainWhitespace,
} from './text-rules.js';
import { importThroughIndex, scriptFunctionLength, scriptUnitsLast } from './typescript-rules.js';

const files = readSourceFiles();
const foldersWithoutIndex = ['cli'];

describe('style', () => {
  it('sees the sources', () => {
    const sources = files.map(({ path }) => path).filter(isSource);
    expect(sources).toContain('src/errors/index.ts');
    expect(sources).toContain('native/include/dualpath_ring.h');
    expect(sources).toContain('test/style/style.test.ts');
  });

  it.each([
    ['source files have at most 400 lines', fileLength],
    ['no unfinished work', noOpenWork],
    ['no disabled tests', noDisabledTests],
    ['no paths of one machine', noPrivatePaths],
    ['no registry hosts', noRegistryUrls],
    ['no tabs, no trailing white space', plainWhitespace],
    ['functions of scripts have at most 70 lines', scriptFunctionLength],
    ['functions of C++ have at most 70 lines', cppFunctionLength],
    ['names in scripts have their unit last', scriptUnitsLast],
    ['names in C++ have their unit last', cppUnitsLast],
    ['folders of src are imported through index.js', importThroughIndex],
    ['native code knows nothing of Node', coreWithoutNode],
  ])('%s', (_name, rule) => {
    const violations = files.flatMap((file) => rule(file).map((violation) => `${file.path}:${violation}`));
    expect(violations).toEqual([]);
  });

  it('every folder of src has an index.ts', () => {
    const paths = new Set(files.map(({ path }) => path));
    const folders = new Set([...paths].flatMap((path) => /^src\/([^/]+)\//.exec(path)?.[1] ?? []));
    const without = [...folders].filter((folder) => !paths.has(`src/${folder}/index.ts`));
    expect(without.filter((folder) => !foldersWithoutIndex.includes(folder))).toEqual([]);
  });
});
