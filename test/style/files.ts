import { readFileSync, readdirSync } from 'node:fs';
import { extname, join, resolve } from 'node:path';

/** A file of the repository; `path` is relative to its root, with `/`. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
}

const root = resolve(import.meta.dirname, '../..');
const skippedFolders = /^(?:\.git|node_modules|build|build-.*|dist|coverage|prebuilds|vendor)$/;
const textExtensions = ['.ts', '.js', '.mjs', '.json', '.cc', '.h', '.md', '.txt', '.sh', '.py', '.yml'];
const textNames = ['run', '.npmrc', '.gitignore', '.clang-format', '.prettierignore'];

/** Every text file of the checkout that people wrote, and the lock file. */
export function readSourceFiles(): SourceFile[] {
  const paths: string[] = [];
  const pending = [''];
  for (let folder = pending.pop(); folder !== undefined; folder = pending.pop()) {
    for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
      const path = folder === '' ? entry.name : `${folder}/${entry.name}`;
      if (entry.isDirectory()) {
        if (!skippedFolders.test(entry.name)) pending.push(path);
      } else if (
        entry.isFile() &&
        (textNames.includes(entry.name) || textExtensions.includes(extname(path)))
      ) {
        paths.push(path);
      }
    }
  }
  return paths.sort().map((path) => ({ path, text: readFileSync(join(root, path), 'utf8') }));
}
