import { existsSync, readFileSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { run, succeeds } from './common.mjs';

/**
 * Removes a CMake build folder that cannot be built: configured for another source folder, as a copied
 * checkout has it, or left without build files by a failed configuration.
 * @returns true when the folder is configured
 */
function dropUnusableBuildFolder(buildFolder, sourceFolder) {
  const cache = join(buildFolder, 'CMakeCache.txt');
  if (!existsSync(cache)) return false;
  const ours = readFileSync(cache, 'utf8').includes(`CMAKE_HOME_DIRECTORY:INTERNAL=${sourceFolder}\n`);
  const complete = ['build.ninja', 'Makefile'].some((name) => existsSync(join(buildFolder, name)));
  if (ours && complete) return true;
  rmSync(buildFolder, { recursive: true });
  return false;
}

/**
 * Configures a CMake build folder and builds it.
 * @param source folder of CMakeLists.txt
 * @param folder build folder, within `source`
 * @param options further arguments of the configuration
 * @param target what is built, everything by default
 * @returns true when all went well
 */
export function cmakeBuild(source, folder, options, target = 'all') {
  const build = join(source, folder);
  const configured = dropUnusableBuildFolder(build, source);
  const generator = !configured && succeeds('ninja', ['--version']) ? ['-G', 'Ninja'] : [];
  const quiet = ['-Wno-dev', '--log-level=NOTICE'];
  return (
    run('cmake', ['-S', source, '-B', build, ...quiet, ...generator, ...options]) &&
    run('cmake', ['--build', build, '--target', target, '--parallel', String(availableParallelism())])
  );
}
