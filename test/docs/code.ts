/** Code blocks of the guides, each with what it takes as given: a comment before it, which a reader does not see. */
import { readdirSync, readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

const root = new URL('../../', import.meta.url);

export const guides = [
  'README.md',
  'CONTRIBUTING.md',
  ...readdirSync(new URL('docs', root), { recursive: true, encoding: 'utf8' }).map((name) => `docs/${name}`),
].filter((path) => path.endsWith('.md'));

export const read = (path: string): string => readFileSync(new URL(path, root), 'utf8');

export interface CodeBlock {
  /** `docs/store.md:5`, of the line that opens it. */
  readonly place: string;
  readonly language: string;
  /** Of the comment before it, its first line apart: imports, declarations. */
  readonly given: string;
  /** The comment says `given, run`: the block is a program with what is given. */
  readonly runs: boolean;
  /** A file that the block is a part of, which other tests check. */
  readonly from: string | undefined;
  readonly code: string;
}

export function codeBlocksOf(path: string, document: string): CodeBlock[] {
  const blocks = /(?:<!-- (?:(examples\/\S+)|given(, run)?\n([^]*?)) ?-->\n)?^```(\w+)\n([^]*?)^```$/gm;
  return [...document.matchAll(blocks)].map((match) => {
    const [whole, from, run, given = '', language, code] = match;
    const line = document.slice(0, match.index + whole.indexOf('```')).split('\n').length;
    return {
      place: `${path}:${line}`,
      language: language!,
      given,
      runs: run !== undefined,
      from,
      code: code!,
    };
  });
}

const options = {
  target: ts.ScriptTarget.ES2022,
  lib: ['lib.es2023.d.ts', 'lib.esnext.disposable.d.ts'],
  module: ts.ModuleKind.NodeNext,
  moduleResolution: ts.ModuleResolutionKind.NodeNext,
  types: ['node'],
  strict: true,
  skipLibCheck: true,
  noEmit: true,
} satisfies ts.CompilerOptions;

/** What the compiler says of programs that import the built package as its users do; an empty list: nothing. */
export function typeProblems(programs: ReadonlyMap<string, string>): string[] {
  const fileOf = (place: string): string =>
    fileURLToPath(new URL(`checked-${place.replaceAll(/\W/g, '-')}.mts`, root));
  const sources = new Map([...programs].map(([place, text]) => [fileOf(place), { place, text }]));
  const onDisk = ts.createCompilerHost(options);
  const host: ts.CompilerHost = {
    ...onDisk,
    fileExists: (file) => sources.has(file) || onDisk.fileExists(file),
    readFile: (file) => sources.get(file)?.text ?? onDisk.readFile(file),
    getSourceFile: (file, version, ...rest) => {
      const source = sources.get(file);
      return source === undefined
        ? onDisk.getSourceFile(file, version, ...rest)
        : ts.createSourceFile(file, source.text, version);
    },
  };
  const program = ts.createProgram([...sources.keys()], options, host);
  return [...program.getSyntacticDiagnostics(), ...program.getSemanticDiagnostics()].map((diagnostic) => {
    const place = sources.get(diagnostic.file?.fileName ?? '')?.place ?? 'the package';
    return `${place}: ${ts.flattenDiagnosticMessageText(diagnostic.messageText, ' ')}`;
  });
}

export const asJavaScript = (text: string): string =>
  ts.transpileModule(text, { compilerOptions: { target: options.target, module: ts.ModuleKind.ESNext } })
    .outputText;
