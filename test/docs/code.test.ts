/** Code blocks of README and guides: programs that the compiler takes, on the package's types; some are run. */
import { spawn, spawnSync } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { once } from 'node:events';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { afterAll, describe, expect, it } from 'vitest';
import { blockLayout, parseModel } from '../../src/layout/index.js';
import { parseQos } from '../../src/qos/index.js';
import { readTrace } from '../../src/trace/index.js';
import { asJavaScript, codeBlocksOf, guides, read, typeProblems, type CodeBlock } from './code.js';

const scratch = mkdtempSync(join(tmpdir(), 'dualpath-docs-'));
afterAll(() => rmSync(scratch, { recursive: true, force: true }));

const blocks = guides.flatMap((path) => codeBlocksOf(path, read(path)));
const scripts = blocks.filter(({ language, from }) => /^(ts|js)$/.test(language) && from === undefined);
const programOf = ({ given, code }: CodeBlock): string => `${given}\n${code}\nexport {};\n`;

/** As it stands, on the built package; paths of a deployment become scratch folders. */
async function run(block: CodeBlock, folder: string): Promise<{ status: number | null; said: string }> {
  const program = asJavaScript(programOf(block)).replaceAll("'/kv'", JSON.stringify(folder));
  const child = spawn(process.execPath, ['--input-type=module', '-'], { timeout: 30_000 });
  child.stdin.end(program);
  const [said] = await Promise.all([text(child.stderr), once(child, 'exit')]);
  return { status: child.exitCode, said };
}

describe('TypeScript of the guides', () => {
  it('is found, with what it takes as given', () => {
    const document = 'x\n<!-- given, run\nconst a = 1;\n-->\n```ts\na;\n```\n\n```js\nb;\n```\n';
    expect(codeBlocksOf('x.md', document)).toMatchObject([
      { place: 'x.md:5', language: 'ts', given: 'const a = 1;\n', runs: true, code: 'a;\n' },
      { place: 'x.md:9', language: 'js', given: '', runs: false, code: 'b;\n' },
    ]);
    expect(scripts.length).toBeGreaterThan(7);
  });

  it('fits the types of the package', () => {
    const programs = new Map(scripts.map((block) => [block.place, programOf(block)]));
    programs.set('broken', "import { BlockStore } from 'dualpath';\nBlockStore.open({ path: 7 });\n");
    const problems = typeProblems(programs);
    expect(problems.filter((problem) => !problem.startsWith('broken: '))).toEqual([]);
    expect(problems.join('\n')).toMatch(/^broken: .*'number' is not assignable to type 'string'/m);
  }, 60_000);

  it.each(scripts.filter(({ runs }) => runs).map((block) => [block.place, block] as const))(
    'runs: %s',
    async (place, block) => {
      const folder = join(scratch, place.replaceAll(/\W/g, '-'));
      expect(await run(block, folder)).toEqual({ status: 0, said: '' });
    },
    60_000,
  );

  it('that fails when it runs is found', async () => {
    const block = { ...scripts[0]!, given: '', code: "throw new Error('on purpose');" };
    expect(await run(block, scratch)).toMatchObject({
      status: 1,
      said: expect.stringContaining('on purpose') as string,
    });
  });
});

describe('other blocks of the guides', () => {
  const jsonOf = (path: string): unknown[] =>
    blocks
      .filter(({ place, language }) => place.startsWith(`${path}:`) && language === 'json')
      .map(({ code }) => JSON.parse(code) as unknown);

  it('are models, descriptions of classes and traces that are read', async () => {
    const [model] = jsonOf('docs/models.md');
    expect(blockLayout(parseModel(JSON.stringify(model), 'docs/models.md'), { blockTokens: 64 }).layers).toBe(
      4,
    );
    const [classes] = jsonOf('docs/qos.md');
    expect(parseQos(classes, 'docs/qos.md')).toBeDefined();
    const trace = join(scratch, 'trace.jsonl');
    writeFileSync(
      trace,
      jsonOf('docs/traces.md')
        .map((line) => `${JSON.stringify(line)}\n`)
        .join(''),
    );
    const sessions = [];
    for await (const session of readTrace(trace, {})) sessions.push(session);
    expect(sessions).toHaveLength(1);
    const json = blocks.filter(({ language }) => language === 'json');
    expect(json).toHaveLength(3); // another one needs a line here
  });

  it('in C are taken by the compiler', () => {
    const programs = blocks.filter(({ language }) => language === 'c');
    expect(programs).toHaveLength(1);
    for (const { given, code } of programs) {
      const source = `${given.replace('CODE', () => code.replaceAll('...', ';'))}\n`;
      const args = ['-fsyntax-only', '-Wall', '-Werror', '-Inative/include', '-xc', '-std=gnu11', '-'];
      const { status, stderr } = spawnSync('gcc', args, { input: source, encoding: 'utf8' });
      expect([status, stderr]).toEqual([0, '']);
    }
  });

  it('are of languages that are checked', () => {
    const checked = ['sh', 'console', 'ts', 'js', 'json', 'c', 'text', 'yaml', 'ini'];
    expect(blocks.filter(({ language }) => !checked.includes(language)).map(({ place }) => place)).toEqual(
      [],
    );
  });
});
