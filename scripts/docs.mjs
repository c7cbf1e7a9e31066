#!/usr/bin/env node
/**
 * Makes the reference from the sources, into build-docs/: the package's entry points (api/), every command's help
 * (cli.md), every option in one table (config.md).
 *
 *   node scripts/docs.mjs
 *
 * What the guides show is checked by the tests of test/docs.
 */
import { mkdirSync, writeFileSync } from 'node:fs';
import { PassThrough } from 'node:stream';
import { join } from 'node:path';
import { knobsOf } from '../dist/cli/config.js';
import { wholeProgram } from '../dist/cli/run.js';
import { SetupError, root, run, say } from './setup/common.mjs';

const folder = join(root, 'build-docs');

/** Help of a command and of all below it, a section each. */
function* helpOf(command, path) {
  let text = '';
  command.configureOutput({ writeOut: (part) => (text += part), getOutHelpWidth: () => 100 });
  command.outputHelp();
  yield `## ${path.join(' ')}\n\n\`\`\`text\n${text.trim()}\n\`\`\`\n`;
  for (const child of command.commands) yield* helpOf(child, [...path, child.name()]);
}

const cell = (text) => text.replaceAll('|', '\\|').replaceAll('\n', ' ');

try {
  mkdirSync(folder, { recursive: true });
  const io = { stdout: new PassThrough(), stderr: new PassThrough(), signal: new AbortController().signal };
  const program = await wholeProgram(io);
  const rows = [...knobsOf(program)].map(
    ({ command, name, default: value, help }) =>
      `| ${command} | \`${cell(name)}\` | ${cell(value ?? '')} | ${cell(help)} |`,
  );
  const head = '| command | option | default | meaning |\n|---|---|---|---|\n';
  writeFileSync(join(folder, 'config.md'), `# Options\n\n${head}${rows.join('\n')}\n`);
  writeFileSync(join(folder, 'cli.md'), `# Commands\n\n${[...helpOf(program, ['dualpath'])].join('\n')}`);
  say(`wrote ${join(folder, 'cli.md')} and config.md: ${rows.length} options`);
  if (!run(process.execPath, [join(root, 'node_modules/typedoc/bin/typedoc')]))
    throw new SetupError('TypeDoc found problems; they are above');
} catch (error) {
  if (!(error instanceof SetupError)) throw error;
  say(`error: ${error.message}`);
  process.exitCode = 1;
}
