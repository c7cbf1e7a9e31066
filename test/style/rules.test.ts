/** Each style rule finds what it is for, and only that. */
import { describe, expect, it } from 'vitest';
import { coreWithoutNode, cppFunctionLength, cppUnitsLast } from './cpp-rules.js';
import {
  fileLength,
  noDisabledTests,
  noOpenWork,
  noPrivatePaths,
  noRegistryUrls,
  plainWhitespace,
  type Rule,
} from './text-rules.js';
import { importThroughIndex, scriptFunctionLength, scriptUnitsLast } from './typescript-rules.js';

const lines = (count: number, line = 'x();'): string => `${line}\n`.repeat(count);
const join = (...parts: string[]): string => parts.join('');

const cases: [what: string, rule: Rule, path: string, text: string, violations: number][] = [
  ['400 lines', fileLength, 'src/a/a.ts', lines(400), 0],
  ['401 lines', fileLength, 'src/a/a.ts', lines(401), 1],
  ['401 lines of prose', fileLength, 'docs/a.md', lines(401), 0],
  ['a note to self', noOpenWork, 'native/a.cc', join('// TO', 'DO: later\n'), 1],
  ['a mkstemp template', noOpenWork, 'native/a.cc', '"/tmp/XXXXXX"\n', 0],
  ['a test alone', noDisabledTests, 'test/a/a.test.ts', join('it.on', "ly('x', () => {});\n"), 1],
  [
    'an each alone',
    noDisabledTests,
    'test/a/a.test.ts',
    join('describe.each([1]).sk', 'ip\nit.each.sk', 'ip\n'),
    1,
  ],
  [
    'a disabled native test',
    noDisabledTests,
    'native/test/a_test.cc',
    join('TEST(A, DISABLED', '_B) {}\n'),
    1,
  ],
  ['a method called skip', noDisabledTests, 'test/a/a.test.ts', 'reader.skip(3);\n', 0],
  ['a home', noPrivatePaths, 'docs/a.md', join('see /ho', 'me/me/notes\n'), 1],
  ['a folder of that name', noPrivatePaths, 'docs/a.md', 'see src/home/notes and ./work/x\n', 0],
  ['a registry', noRegistryUrls, 'docs/a.md', join('https://regi', 'stry.example.org/x\n'), 1],
  [
    'a resolved package',
    noRegistryUrls,
    'package-lock.json',
    '"resolved": "https://example.org/a.tgz",\n',
    1,
  ],
  ['a funding page', noRegistryUrls, 'package-lock.json', '"url": "https://example.org/fund"\n', 0],
  ['a tab', plainWhitespace, 'CMakeLists.txt', 'a\tb\n', 1],
  ['a blank at the end', plainWhitespace, 'docs/a.md', 'a \n', 1],
  ['no last newline', plainWhitespace, 'docs/a.md', 'a', 1],
  ['70 lines of function', scriptFunctionLength, 'src/a/a.ts', `function f() {\n${lines(68)}}\n`, 0],
  ['71 lines of function', scriptFunctionLength, 'src/a/a.ts', `function f() {\n${lines(69)}}\n`, 1],
  ['a long arrow function', scriptFunctionLength, 'scripts/a.mjs', `const f = () => {\n${lines(69)}};\n`, 1],
  ['a long describe', scriptFunctionLength, 'test/a.test.ts', `describe('a', () => {\n${lines(69)}});\n`, 0],
  ['70 lines of C++ function', cppFunctionLength, 'native/a.cc', `int f() {\n${lines(68)}}\n`, 0],
  ['71 lines of C++ function', cppFunctionLength, 'native/a.cc', `int f() {\n${lines(69)}}\n`, 1],
  [
    'a long method',
    cppFunctionLength,
    'native/a.h',
    `struct A {\n auto f() const noexcept -> T {\n${lines(69)}}\n};`,
    1,
  ],
  [
    'a long constructor',
    cppFunctionLength,
    'native/a.cc',
    `A::A(int b) : b_(b), c_(0) {\n${lines(69)}}\n`,
    1,
  ],
  [
    'a long class',
    cppFunctionLength,
    'native/a.h',
    `namespace n {\nclass A : B {\n${lines(80, 'int f() { }')}};\n}`,
    0,
  ],
  ['braces in text', cppFunctionLength, 'native/a.cc', `int f() { g('{', "{"); /* { */ }\n${lines(80)}`, 0],
  ['a unit first', scriptUnitsLast, 'src/a/a.ts', 'const usLatency = 1;\n', 1],
  ['a field with its unit first', scriptUnitsLast, 'src/a/a.ts', 'interface A { msTimeout: number }\n', 1],
  [
    'ratios and other words',
    scriptUnitsLast,
    'src/a/a.ts',
    'const nsPerByte = 1, user = 2, msg = latencyUs;\n',
    0,
  ],
  ['a C++ unit first', cppUnitsLast, 'native/a.cc', 'int us_latency = 0;  // us_other\n', 1],
  ['a C++ ratio', cppUnitsLast, 'native/a.cc', 'int ns_per_byte, bonus_points;\n', 0],
  ['an internal of another folder', importThroughIndex, 'src/a/a.ts', "import { b } from '../b/b.js';\n", 1],
  ['exporting an internal', importThroughIndex, 'src/index.ts', "export { b } from './b/b.js';\n", 1],
  ['importing an internal later', importThroughIndex, 'src/a/a.ts', "await import('../b/b.js');\n", 1],
  ['the face of another folder', importThroughIndex, 'src/a/a.ts', "import { b } from '../b/index.js';\n", 0],
  ['the own folder', importThroughIndex, 'src/a/c/a.ts', "import { b } from '../b.js';\n", 0],
  ['Node in the core', coreWithoutNode, 'native/core/a.cc', '#include <node_api.h>\n', 1],
  ['Node in the bindings', coreWithoutNode, 'bindings/a.cc', '#include <node_api.h>\n', 0],
  ['a node of our own', coreWithoutNode, 'native/core/a.cc', '#include "core/node.h"\n', 0],
];

describe('style rules', () => {
  it.each(cases)('%s', (_what, rule, path, text, violations) => {
    expect(rule({ path, text })).toHaveLength(violations);
  });
});
