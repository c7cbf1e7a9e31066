import type { Rule } from './text-rules.js';
import { maxFunctionLines } from './typescript-rules.js';

const isCpp = (path: string): boolean => /\.(?:cc|h)$/.test(path);
const nodeHeader = /^\s*#\s*include\s*[<"](?:node(?:_\w+)?\.h|napi|js_native_api|uv[./]|v8)/;
const commentOrLiteral =
  /\/\/[^\n]*|\/\*[\s\S]*?\*\/|R"(\w*)\([\s\S]*?\)\1"|"(?:\\.|[^"\\\n])*"|\b\d[\w.']*|'(?:\\.|[^'\\\n])*'/g;

/** C++ without comments, strings and numbers; the lines stay where they are. */
function codeOnly(text: string): string {
  return text.replace(commentOrLiteral, (match) => match.replace(/[^\n]/g, ' '));
}

/** native/ can be built and tested without Node. */
export const coreWithoutNode: Rule = ({ path, text }) => {
  if (!isCpp(path) || !path.startsWith('native/')) return [];
  return text
    .split('\n')
    .flatMap((line, index) => (nodeHeader.test(line) ? [`${String(index + 1)}: ${line.trim()}`] : []));
};

/** Whether a `{` after this text opens a function: a parameter list, then what may follow one. */
function opensFunction(header: string): boolean {
  const withoutDirectives = header.replace(/^\s*#[^\n]*$/gm, '').trim();
  return /\)\s*(?:(?:const|noexcept|override|final|mutable|&&?)\s*)*(?:->[^;]*|:[^;]*)?$/.test(
    withoutDirectives,
  );
}

/** Functions by braces alone, which is exact enough for formatted code: a body within none other. */
export const cppFunctionLength: Rule = ({ path, text }) => {
  if (!isCpp(path)) return [];
  const found: string[] = [];
  const open: { isFunction: boolean; line: number }[] = [];
  let line = 1;
  let header = '';
  for (const character of codeOnly(text)) {
    if (character === '\n') line++;
    if (character === '{') {
      const inFunction = open.some(({ isFunction }) => isFunction);
      open.push({ isFunction: !inFunction && opensFunction(header), line });
      header = '';
    } else if (character === '}') {
      const closed = open.pop();
      const lines = line - (closed?.line ?? line) + 1;
      if (closed?.isFunction === true && lines > maxFunctionLines) {
        found.push(`${String(closed.line)}: function of ${String(lines)} lines`);
      }
      header = '';
    } else {
      header = character === ';' ? '' : header + character;
    }
  }
  return found;
};

const leadingUnit = /\b(?:ns|us|ms|kib|mib|gib)_(?!per_)[a-z]\w*/g;

/** Units come last: `latency_us`; `ns_per_byte` is a ratio. */
export const cppUnitsLast: Rule = ({ path, text }) => {
  if (!isCpp(path)) return [];
  return codeOnly(text)
    .split('\n')
    .flatMap((line, index) =>
      [...line.matchAll(leadingUnit)].map(
        ([name]) => `${String(index + 1)}: the unit of ${name} belongs at its end`,
      ),
    );
};
