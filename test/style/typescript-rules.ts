import { posix } from 'node:path';
import ts from 'typescript';
import type { Rule } from './text-rules.js';

export const maxFunctionLines = 70;

const isTypeScript = (path: string): boolean => path.endsWith('.ts');
const isScript = (path: string): boolean => /\.(?:ts|mjs|js)$/.test(path);

function parse(path: string, text: string): ts.SourceFile {
  return ts.createSourceFile(path, text, ts.ScriptTarget.ES2022, true);
}

function visitAll(node: ts.Node, visit: (node: ts.Node) => void): void {
  visit(node);
  ts.forEachChild(node, (child) => {
    visitAll(child, visit);
  });
}

function lineOf(source: ts.SourceFile, position: number): number {
  return source.getLineAndCharacterOfPosition(position).line + 1;
}

/** The callback of `describe` holds tests as a file does; it is not a function to be read as one. */
function isDescribeCallback(node: ts.Node): boolean {
  const { parent } = node;
  return ts.isCallExpression(parent) && /^describe\b/.test(parent.expression.getText());
}

/** A function fits on a screen or two. */
export const scriptFunctionLength: Rule = ({ path, text }) => {
  if (!isScript(path)) return [];
  const source = parse(path, text);
  const found: string[] = [];
  visitAll(source, (node) => {
    if (!ts.isFunctionLike(node) || isDescribeCallback(node)) return;
    const first = lineOf(source, node.getStart());
    const lines = lineOf(source, node.end) - first + 1;
    if (lines > maxFunctionLines) found.push(`${String(first)}: function of ${String(lines)} lines`);
  });
  return found;
};

const leadingUnit = /^(?:ns|us|ms|kib|mib|gib)(?!Per)[A-Z]/;

/** Units come last: `latencyUs`, so that names sort by what they measure. `nsPerByte` is a ratio. */
export const scriptUnitsLast: Rule = ({ path, text }) => {
  if (!isScript(path)) return [];
  const source = parse(path, text);
  const found: string[] = [];
  visitAll(source, (node) => {
    const name = (node as ts.NamedDeclaration).name;
    if (name !== undefined && ts.isIdentifier(name) && leadingUnit.test(name.text)) {
      found.push(`${String(lineOf(source, name.getStart()))}: the unit of ${name.text} belongs at its end`);
    }
  });
  return found;
};

/** What a node imports or exports from, if it does: a declaration, or `import()`. */
function specifierOf(node: ts.Node): ts.Node | undefined {
  if (ts.isImportDeclaration(node) || ts.isExportDeclaration(node)) return node.moduleSpecifier;
  const isImport = ts.isCallExpression(node) && node.expression.kind === ts.SyntaxKind.ImportKeyword;
  return isImport ? node.arguments[0] : undefined;
}

function specifiersOf(source: ts.SourceFile): { specifier: string; line: number }[] {
  const found: { specifier: string; line: number }[] = [];
  visitAll(source, (node) => {
    const specifier = specifierOf(node);
    if (specifier === undefined || !ts.isStringLiteral(specifier)) return;
    found.push({ specifier: specifier.text, line: lineOf(source, node.getStart()) });
  });
  return found;
}

/** A folder of src/ is used through its index.ts and nothing else. */
export const importThroughIndex: Rule = ({ path, text }) => {
  if (!isTypeScript(path) || !path.startsWith('src/')) return [];
  const folder = posix.dirname(path).split('/')[1];
  return specifiersOf(parse(path, text)).flatMap(({ specifier, line }) => {
    if (!specifier.startsWith('.')) return [];
    const target = posix.join(posix.dirname(path), specifier).split('/');
    const ownFolder = target.length === 2 || target[1] === folder;
    const throughIndex = target.length === 3 && target[2] === 'index.js';
    return ownFolder || throughIndex
      ? []
      : [`${String(line)}: imports ${specifier}, not its folder's index.js`];
  });
};
