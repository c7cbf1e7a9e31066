import type { SourceFile } from './files.js';

/** A rule looks at one file and says, for each violation, `line: what is wrong`. */
export type Rule = (file: SourceFile) => string[];

const maxLines = 400;

export const isSource = (path: string): boolean => /\.(?:ts|mjs|js|cc|h)$/.test(path);
const isLockFile = (path: string): boolean => path === 'package-lock.json';

/** The lines, numbered from 1, that a pattern matches. */
function matchingLines(text: string, pattern: RegExp, what: string): string[] {
  return text
    .split('\n')
    .flatMap((line, index) => (pattern.test(line) ? [`${String(index + 1)}: ${what}: ${line.trim()}`] : []));
}

/** Source files stay short enough to be read in one sitting. */
export const fileLength: Rule = ({ path, text }) => {
  if (!isSource(path)) return [];
  const lines = text.trimEnd().split('\n').length;
  return lines > maxLines ? [`${String(lines)}: longer than ${String(maxLines)} lines`] : [];
};

// Joined here so that this file keeps its own rule.
const openWords = ['TO' + 'DO', 'FIX' + 'ME', 'XX' + 'X', 'HA' + 'CK'];
const openWord = new RegExp(`\\b(?:${openWords.join('|')})\\b`);

/** What is unfinished goes to the issue tracker. */
export const noOpenWork: Rule = ({ path, text }) =>
  isLockFile(path) ? [] : matchingLines(text, openWord, 'unfinished work');

const disabledTest = /\b(?:describe|it|test|suite|bench)(?:\.\w+)*\.(?:only|skip|todo)\b|\bDISABLED_\w/;

/** A test runs or does not exist. */
export const noDisabledTests: Rule = ({ path, text }) =>
  /^(?:test|native\/test)\//.test(path) ? matchingLines(text, disabledTest, 'disabled test') : [];

const privatePath = /(?<![\w.~-])\/(?:home|root|work|Users)\//;

/** Nothing depends on, or tells of, the machine it was written on. */
export const noPrivatePaths: Rule = ({ path, text }) =>
  isLockFile(path) ? [] : matchingLines(text, privatePath, 'path of one machine');

const registryUrl = /https?:\/\/[^/\s"']*(?:registry|npmjs|artifactory|pypi)/i;
const resolvedPackage = /"(?:resolved|version)": *"[^"]*:\/\//;

/** npm's own configuration says where packages come from, not the repository. */
export const noRegistryUrls: Rule = ({ path, text }) =>
  matchingLines(text, isLockFile(path) ? resolvedPackage : registryUrl, 'registry');

/** The formatters' ground rules, for the files no formatter sees too. */
export const plainWhitespace: Rule = ({ path, text }) => {
  if (isLockFile(path)) return [];
  return [
    ...matchingLines(text, /\t/, 'tab'),
    ...matchingLines(text, /[ \r]$/, 'trailing white space'),
    ...(text.endsWith('\n') || text === '' ? [] : ['no newline at the end']),
  ];
};
